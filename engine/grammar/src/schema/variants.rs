//! Objects with a least or greatest number of keys, written out as choices of properties: the recogniser counts no
//! more. It must never count a key twice that the text repeats.

use super::solution::{Object, Property};

/// Ways that one object may be written out in.
const VARIANTS_MAX: usize = 64;

/// How one property takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Required,
    Optional,
    Never,
}

/// One way to write an object: how its properties are used, and how many keys it has in all.
pub(super) struct Variant {
    pub(super) uses: Vec<Use>,
    pub(super) min: Option<u64>,
    pub(super) max: Option<u64>,
}

impl Variant {
    pub(super) fn plain(object: &Object, usable: &[bool]) -> Variant {
        let usage = |(property, usable): (&Property, &bool)| match usable {
            true if property.required => Use::Required,
            true => Use::Optional,
            false => Use::Never,
        };
        let uses = object.properties.iter().zip(usable).map(usage).collect();
        Variant {
            uses,
            min: None,
            max: None,
        }
    }
}

/// Why a bound can't be written: the keyword and the problem.
type Unwritable = (&'static str, String);

fn too_many(keyword: &'static str) -> Unwritable {
    let problem = format!("more than {VARIANTS_MAX} choices of properties, expected fewer");
    (keyword, problem)
}

/// Writes `minProperties` and `maxProperties` out as choices of properties. Keys that the schema does not name may
/// be repeated in the text, and count once.
pub(super) fn variants(
    object: &Object,
    usable: &[bool],
    is_open: bool,
) -> Result<Vec<Variant>, Unwritable> {
    let plain = Variant::plain(object, usable);
    let is_optional = |index: &usize| plain.uses[*index] == Use::Optional;
    let optional: Vec<usize> = (0..plain.uses.len()).filter(is_optional).collect();
    let beyond =
        |count: u64| usize::try_from(count.saturating_sub(object.required())).unwrap_or(usize::MAX);
    let (missing, spare) = (beyond(object.min), object.max.map(beyond));
    match is_open {
        true => open_variants(object, plain, &optional, missing),
        false => closed_variants(&plain, &optional, missing, spare.unwrap_or(usize::MAX)),
    }
}

/// Of the optional properties so many are missing, and there is room for so many.
fn closed_variants(
    plain: &Variant,
    optional: &[usize],
    missing: usize,
    spare: usize,
) -> Result<Vec<Variant>, Unwritable> {
    let spare = spare.min(optional.len());
    let mut out = Vec::new();
    for kept in choices(optional, spare).ok_or_else(|| too_many("maxProperties"))? {
        for forced in choices(&kept, missing).ok_or_else(|| too_many("minProperties"))? {
            // The forced ones are the first that are used: so no text fits two choices of them.
            let last = forced.last().copied();
            let mut uses = plain.uses.clone();
            for index in optional {
                uses[*index] = match (kept.contains(index), forced.contains(index)) {
                    (_, true) => Use::Required,
                    (true, false) if last.is_none_or(|last| *index > last) => Use::Optional,
                    _ => Use::Never,
                };
            }
            out.push(Variant {
                uses,
                min: None,
                max: None,
            });
            if out.len() > VARIANTS_MAX {
                return Err(too_many("minProperties"));
            }
        }
    }
    Ok(out)
}

fn open_variants(
    object: &Object,
    plain: Variant,
    optional: &[usize],
    missing: usize,
) -> Result<Vec<Variant>, Unwritable> {
    if missing > 1 {
        let problem = "more than one key beyond the required ones, expected \
                       `additionalProperties: false` or a lower bound";
        return Err(("minProperties", problem.to_string()));
    }
    if object.max.is_some() && !optional.is_empty() {
        let problem = "beside optional properties and others, expected \
                       `additionalProperties: false` or no bound";
        return Err(("maxProperties", problem.to_string()));
    }
    if missing == 0 || optional.is_empty() {
        let min = (missing > 0).then_some(object.min);
        return Ok(vec![Variant {
            min,
            max: object.max,
            ..plain
        }]);
    }
    if optional.len() >= VARIANTS_MAX {
        return Err(too_many("minProperties"));
    }
    // At least one: any of the optional ones, or none of them and another key.
    let mut out = Vec::new();
    for (at, forced) in optional.iter().enumerate() {
        let mut uses = plain.uses.clone();
        uses[*forced] = Use::Required;
        optional[..at]
            .iter()
            .for_each(|index| uses[*index] = Use::Never);
        out.push(Variant {
            uses,
            min: None,
            max: None,
        });
    }
    let mut uses = plain.uses;
    optional.iter().for_each(|index| uses[*index] = Use::Never);
    out.push(Variant {
        uses,
        min: Some(object.min),
        max: None,
    });
    Ok(out)
}

/// All choices of so many of the items, in order; `None` if there are too many, none if there are too few items.
fn choices(items: &[usize], count: usize) -> Option<Vec<Vec<usize>>> {
    let mut out = vec![Vec::new()];
    if count > items.len() {
        return Some(Vec::new());
    }
    for left in (1..=count).rev() {
        let mut longer = Vec::new();
        for chosen in &out {
            let from = chosen.last().map_or(0, |last| {
                items
                    .iter()
                    .position(|item| item == last)
                    .map_or(0, |at| at + 1)
            });
            for item in &items[from..items.len() + 1 - left] {
                let mut next: Vec<usize> = chosen.clone();
                next.push(*item);
                longer.push(next);
            }
            if longer.len() > VARIANTS_MAX {
                return None;
            }
        }
        out = longer;
    }
    Some(out)
}
