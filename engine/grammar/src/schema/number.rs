//! Bounds and steps of numbers, exactly: decimals in fixed point. It must never round; a number that does not fit
//! is refused.

use serde_json::{Map, Number, Value, json};

/// Decimal places that a number in a schema may have.
const PLACES: u32 = 15;
/// What one is in fixed point.
const ONE: i128 = 10_i128.pow(PLACES);
/// Whole numbers beyond this are not exact as doubles.
const WHOLE_MAX: i128 = 1 << 53;
/// The largest step, and numerator of a step, that is turned into states of a recogniser.
const STEP_MAX: i128 = 10_000;

/// A decimal number, in units of 10^-15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Decimal(i128);

impl Decimal {
    /// The exact value of a JSON number; `None` if it has too many places, or is too large for a double to
    /// hold all whole numbers up to it.
    pub(super) fn of(number: &Number) -> Option<Decimal> {
        Decimal::parse(&number.to_string())
    }

    fn parse(text: &str) -> Option<Decimal> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, places) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let places = places.trim_end_matches('0');
        let digits: i128 = format!("{whole}{places}").parse().ok()?;
        if digits == 0 {
            return Some(Decimal(0));
        }
        let shift = exponent - i32::try_from(places.len()).ok()? + PLACES.cast_signed();
        let scale = 10_i128.checked_pow(shift.unsigned_abs())?;
        let value = match shift >= 0 {
            true => digits.checked_mul(scale)?,
            false if digits % scale == 0 => digits / scale,
            false => return None,
        };
        (value.abs() <= WHOLE_MAX * ONE).then_some(Decimal(value))
    }

    /// The value, if it is whole.
    pub(super) fn whole(self) -> Option<i128> {
        (self.0 % ONE == 0).then_some(self.0 / ONE)
    }

    pub(super) fn is_positive(self) -> bool {
        self.0 > 0
    }

    pub(super) fn is_multiple_of(self, step: Decimal) -> bool {
        self.0 % step.0 == 0
    }

    fn ceil(self) -> i128 {
        -(-self.0).div_euclid(ONE)
    }

    fn floor(self) -> i128 {
        self.0.div_euclid(ONE)
    }

    fn to_json(self) -> Value {
        match self.whole() {
            Some(whole) => json!(i64::try_from(whole).unwrap_or_default()),
            None => {
                let (sign, size) = if self.0 < 0 {
                    ("-", -self.0)
                } else {
                    ("", self.0)
                };
                let text = format!("{sign}{}.{:015}", size / ONE, size % ONE);
                json!(text.parse::<f64>().unwrap_or_default())
            }
        }
    }
}

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) at: Decimal,
    /// Whether the end itself lies outside.
    pub(super) open: bool,
}

/// What a number must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NumberRule {
    pub(super) integer: bool,
    pub(super) min: Option<Bound>,
    pub(super) max: Option<Bound>,
    /// It is a multiple of each of these.
    pub(super) steps: Vec<Decimal>,
}

/// Why a rule for numbers can't be written: the keyword and the problem.
pub(super) type Unwritable = (&'static str, String);

impl NumberRule {
    pub(super) fn is_free(&self) -> bool {
        *self
            == NumberRule {
                integer: self.integer,
                ..NumberRule::default()
            }
    }

    /// Adds a lower bound.
    pub(super) fn raise(&mut self, bound: Bound) {
        let tighter = |old: Bound| (bound.at, bound.open) > (old.at, old.open);
        if self.min.is_none_or(tighter) {
            self.min = Some(bound);
        }
    }

    /// Adds an upper bound.
    pub(super) fn lower(&mut self, bound: Bound) {
        let tighter = |old: Bound| (bound.at, !bound.open) < (old.at, !old.open);
        if self.max.is_none_or(tighter) {
            self.max = Some(bound);
        }
    }

    pub(super) fn and(&mut self, other: &NumberRule) {
        self.integer |= other.integer;
        other.min.into_iter().for_each(|bound| self.raise(bound));
        other.max.into_iter().for_each(|bound| self.lower(bound));
        for step in &other.steps {
            if !self.steps.contains(step) {
                self.steps.push(*step);
            }
        }
    }

    pub(super) fn admits(&self, value: Decimal) -> bool {
        let above = |b: Bound| value > b.at || (value == b.at && !b.open);
        let below = |b: Bound| value < b.at || (value == b.at && !b.open);
        (!self.integer || value.whole().is_some())
            && self.min.is_none_or(above)
            && self.max.is_none_or(below)
            && self.steps.iter().all(|step| value.is_multiple_of(*step))
    }

    /// The smallest number that all steps divide; one where only whole numbers are asked for. `Err` where it
    /// is too large to hold.
    fn step(&self) -> Result<Option<i128>, Unwritable> {
        let whole = self.integer.then_some(ONE);
        let steps = self.steps.iter().map(|step| step.0).chain(whole);
        let mut all: Option<i128> = None;
        for step in steps {
            let merged = match all {
                None => Some(step),
                Some(all) => (all / gcd(all, step)).checked_mul(step),
            };
            let merged = merged.filter(|step| *step <= WHOLE_MAX * ONE);
            all = Some(merged.ok_or(("multipleOf", TOO_FINE.to_string()))?);
        }
        Ok(all)
    }

    /// Whether surely no number fits.
    pub(super) fn is_empty(&self) -> bool {
        let (Some(min), Some(max)) = (self.min, self.max) else {
            return false;
        };
        if min.at > max.at || (min.at == max.at && (min.open || max.open)) {
            return true;
        }
        let Ok(Some(step)) = self.step() else {
            return false;
        };
        let mut first = -(-min.at.0).div_euclid(step) * step;
        if first == min.at.0 && min.open {
            first += step;
        }
        first > max.at.0 || (first == max.at.0 && max.open)
    }

    /// The keywords that hold the rule.
    pub(super) fn write(&self) -> Result<Value, Unwritable> {
        let mut out = Map::new();
        let word = if self.integer { "integer" } else { "number" };
        out.insert("type".into(), word.into());
        let step = self.step()?;
        match self.integer {
            true => self.write_whole_bounds(&mut out)?,
            false => self.write_bounds(&mut out)?,
        }
        if let Some(step) = step.filter(|step| !self.integer || *step != ONE) {
            out.insert("multipleOf".into(), written_step(step)?);
        }
        Ok(Value::Object(out))
    }

    fn write_whole_bounds(&self, out: &mut Map<String, Value>) -> Result<(), Unwritable> {
        let json = |whole: i128| json!(i64::try_from(whole).unwrap_or_default());
        if let Some(min) = self.min {
            let next = i128::from(min.open && min.at.whole().is_some());
            out.insert("minimum".into(), json(min.at.ceil() + next));
        }
        if let Some(max) = self.max {
            let next = i128::from(max.open && max.at.whole().is_some());
            out.insert("maximum".into(), json(max.at.floor() - next));
        }
        Ok(())
    }

    fn write_bounds(&self, out: &mut Map<String, Value>) -> Result<(), Unwritable> {
        let (mut min, mut max) = (self.min, self.max);
        // Between an excluded whole number and an end within one of it, the recogniser would take the excluded
        // number too; a closed end just beside it says the same to fifteen (six) places.
        if let (Some(low), Some(high)) = (&mut min, &mut max) {
            if low.open && low.at.0 >= 0 && low.at.whole().is_some() && high.at.0 - low.at.0 < ONE {
                *low = beside(*low, 1)
                    .filter(|low| low.at < high.at)
                    .ok_or(NARROW.own())?;
            } else if high.open
                && high.at.0 <= 0
                && high.at.whole().is_some()
                && high.at.0 - low.at.0 < ONE
            {
                *high = beside(*high, -1)
                    .filter(|high| high.at > low.at)
                    .ok_or(NARROW.own())?;
            }
        }
        if let Some(min) = min {
            let key = if min.open {
                "exclusiveMinimum"
            } else {
                "minimum"
            };
            out.insert(key.into(), min.at.to_json());
        }
        if let Some(max) = max {
            let key = if max.open {
                "exclusiveMaximum"
            } else {
                "maximum"
            };
            out.insert(key.into(), max.at.to_json());
        }
        Ok(())
    }
}

const TOO_FINE: &str = "steps with too large a common multiple, expected simpler ones";

struct Narrow(&'static str, &'static str);

impl Narrow {
    fn own(&self) -> Unwritable {
        (self.0, self.1.to_string())
    }
}

const NARROW: Narrow = Narrow(
    "exclusiveMinimum",
    "too narrow a range beside an excluded whole number, expected a closed end",
);

/// A closed end just inside an open one at a whole number.
fn beside(bound: Bound, side: i128) -> Option<Bound> {
    const SIX_PLACES: i128 = ONE / 1_000_000;
    let distance = match bound.at.0 {
        0 => 1,
        at if at.abs() <= SIX_PLACES * ONE => SIX_PLACES,
        _ => return None,
    };
    let at = Decimal(bound.at.0 + side * distance);
    Some(Bound { at, open: false })
}

/// A step as the recogniser reads it: it multiplies the double by ten until it is whole, so a step that this
/// does not carry over exactly is refused.
fn written_step(step: i128) -> Result<Value, Unwritable> {
    let json = Decimal(step).to_json();
    let (mut units, mut places) = (json.as_f64().unwrap_or_default(), 0_u32);
    while units.fract() != 0.0 && places < PLACES {
        units *= 10.0;
        places += 1;
    }
    let exact = step.checked_mul(10_i128.pow(places)).is_some_and(|scaled| {
        scaled % ONE == 0 && scaled / ONE <= STEP_MAX && units == (scaled / ONE) as f64
    });
    match exact {
        true => Ok(json),
        false => Err((
            "multipleOf",
            format!("a step of {json}, expected one of few digits, at most {STEP_MAX} units"),
        )),
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
