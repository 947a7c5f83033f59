//! The formats of strings that are enforced, as patterns of our own. Each may admit fewer texts than its standard,
//! never more. A format that is not listed here is refused by name.

use super::pattern::Pattern;

/// The names, for messages and the documentation.
pub(super) const NAMES: &[&str] = &[
    "date",
    "time",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
    "json-pointer",
];

/// The patterns of a format; all of them hold.
pub(super) fn of(name: &str) -> Option<Vec<Pattern>> {
    let regexes = match name {
        // RFC 3339, full-date.
        "date" => vec![date()],
        "time" => vec![time()],
        "date-time" => vec![format!("{}[Tt]{}", date(), time())],
        // RFC 3339, appendix A.
        "duration" => vec![duration()],
        // RFC 5321, with a plain local part and a domain of names.
        "email" => vec![
            format!("{ATOM}(?:\\.{ATOM})*@{}", hostname()),
            "[^@]{1,64}@[^@]{1,253}".to_string(),
        ],
        // RFC 1123; without `--` in the third and fourth place, which international names take.
        "hostname" => vec![hostname(), ".{1,253}".to_string()],
        // RFC 2673, dotted quad.
        "ipv4" => vec![ipv4()],
        "ipv6" => vec![ipv6()],
        // RFC 4122.
        "uuid" => vec!["[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}".to_string()],
        "uri" => vec![uri()],
        // RFC 6901.
        "json-pointer" => vec!["(?:\\x{2f}(?:[^~\\x{2f}]|~[01])*)*".to_string()],
        _ => return None,
    };
    Some(regexes.iter().map(|regex| Pattern::whole(regex)).collect())
}

const ATOM: &str = "[a-zA-Z0-9!#$%&'*+\\-=?^_`{|}~]+";

fn date() -> String {
    let months = "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])\
                  |(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
    // The 29th of February, in years that four divides but not a hundred, or four hundred does.
    let leap = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29";
    format!("(?:[0-9]{{4}}-{months}|{leap})")
}

/// Leap seconds are left out: whether there was one depends on the offset.
fn time() -> String {
    let hours = "(?:[01][0-9]|2[0-3])";
    format!("{hours}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+\\-]{hours}:[0-5][0-9])")
}

fn duration() -> String {
    let clock = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
    let days = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
    format!("P(?:{days}(?:{clock})?|{clock}|[0-9]+W)")
}

/// Names of labels of at most 63 characters each.
fn hostname() -> String {
    let (end, any) = ("[a-zA-Z0-9]", "[a-zA-Z0-9\\-]");
    let long = format!("{any}(?:{end}{any}|-{end}){any}{{0,58}}{end}");
    let label = format!("{end}(?:{any}{{0,2}}{end}|{long})?");
    format!("{label}(?:\\.{label})*")
}

fn ipv4() -> String {
    let byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    format!("{byte}(?:\\.{byte}){{3}}")
}

/// RFC 4291 without a dotted quad at the end.
fn ipv6() -> String {
    let group = "[0-9a-fA-F]{1,4}";
    let mut forms = vec![format!("{group}(?::{group}){{7}}")];
    // So many groups before `::`, and as many behind it as leave room for at least one of zeros.
    for before in 0..=7_usize {
        let head = match before {
            0 => String::new(),
            1 => group.to_string(),
            n => format!("{group}(?::{group}){{{}}}", n - 1),
        };
        let tail = match 7 - before {
            0 => String::new(),
            1 => format!("(?:{group})?"),
            n => format!("(?:{group}(?::{group}){{0,{}}})?", n - 1),
        };
        forms.push(format!("{head}::{tail}"));
    }
    format!("(?:{})", forms.join("|"))
}

/// RFC 3986 without addresses in brackets.
fn uri() -> String {
    let unreserved = "a-zA-Z0-9\\-._~!$&'()*+,;=";
    let octet = "%[0-9a-fA-F]{2}";
    let segment = format!("(?:[{unreserved}:@]|{octet})");
    let user = format!("(?:(?:[{unreserved}:]|{octet})*@)?");
    let host = format!("(?:[{unreserved}]|{octet})*(?::[0-9]*)?");
    let below = format!("(?:\\x{{2f}}{segment}*)*");
    let rest = format!("(?:[{unreserved}:@\\x{{2f}}?]|{octet})*");
    let rooted = format!("(?:\\x{{2f}})?{segment}+{below}");
    format!(
        "[a-zA-Z][a-zA-Z0-9+\\-.]*:(?:\\x{{2f}}\\x{{2f}}{user}{host}{below}|{rooted}|\\x{{2f}})?\
         (?:\\?{rest})?(?:\\x{{23}}{rest})?"
    )
}
