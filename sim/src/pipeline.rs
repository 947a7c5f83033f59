//! HTTP by hand, for clients that send a second request before the first is answered: the well-kept client does not.

use crate::client::{BodyEnd, Outcome};
use crate::workload::Wish;

/// A request as bytes. After the last one the server closes the connection.
pub fn request(wish: &Wish, is_last: bool) -> Vec<u8> {
    let body = wish.body.to_string();
    let connection = if is_last { "close" } else { "keep-alive" };
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: sim\r\ncontent-type: application/json\r\nx-request-id: {}\r\n\
         connection: {connection}\r\ncontent-length: {}\r\n\r\n",
        wish.route.path(),
        wish.id,
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

/// The first response of these bytes, and what comes after it.
pub fn response(bytes: &[u8]) -> (Outcome, &[u8]) {
    let none = || Outcome::NoResponse("the connection ended before a response".to_owned());
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        return (none(), &[]);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let mut rest = &bytes[end + 4..];
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let Some(status) = status else {
        return (none(), &[]);
    };
    let field = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_owned())
    };
    let number = |name: &str| field(name).and_then(|value| value.parse::<u64>().ok());
    let (body, end) = match number("content-length:") {
        Some(length) => {
            let length = (length as usize).min(rest.len());
            let is_whole = Some(length as u64) == number("content-length:");
            let (body, after) = rest.split_at(length);
            rest = after;
            (body.to_vec(), ended(is_whole))
        }
        None => chunks(&mut rest),
    };
    let retry_after = number("retry-after:");
    let response = Outcome::Response {
        status,
        retry_after,
        body,
        end,
    };
    (response, rest)
}

/// A body in chunks, taken off the front.
fn chunks(rest: &mut &[u8]) -> (Vec<u8>, BodyEnd) {
    let mut body = Vec::new();
    loop {
        let Some(line) = find(rest, b"\r\n") else {
            return (body, ended(false));
        };
        let size = std::str::from_utf8(&rest[..line]).ok();
        let Some(size) = size.and_then(|size| usize::from_str_radix(size, 16).ok()) else {
            return (body, ended(false));
        };
        let (start, end) = (line + 2, line + 2 + size);
        if rest.len() < end + 2 {
            body.extend(rest.get(start..).into_iter().flatten());
            *rest = &[];
            return (body, ended(false));
        }
        body.extend(&rest[start..end]);
        *rest = &rest[end + 2..];
        if size == 0 {
            return (body, ended(true));
        }
    }
}

fn ended(is_whole: bool) -> BodyEnd {
    match is_whole {
        true => BodyEnd::Complete,
        false => BodyEnd::Broken("the connection ended inside a body".to_owned()),
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
