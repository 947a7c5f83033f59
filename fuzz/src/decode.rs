//! What targets read out of their bytes beside what `arbitrary` does by itself.

use arbitrary::Unstructured;

/// All that is left, as text; what is no UTF-8 is replaced.
pub fn rest_text(input: Unstructured<'_>) -> String {
    String::from_utf8_lossy(input.take_rest()).into_owned()
}

/// One of these, by a byte: a byte more or less keeps the others where they are.
pub fn pick<'a, T>(input: &mut Unstructured<'_>, items: &'a [T]) -> &'a T {
    &items[usize::from(byte(input)) % items.len()]
}

/// The next byte; 0 once there are none.
pub fn byte(input: &mut Unstructured<'_>) -> u8 {
    input.arbitrary().unwrap_or(0)
}

/// A number between two bounds, both of them included.
pub fn between(input: &mut Unstructured<'_>, low: u32, high: u32) -> u32 {
    let num = high - low + 1;
    let wide = match num {
        0..=256 => u32::from(byte(input)),
        _ => u32::from(input.arbitrary::<u16>().unwrap_or(0)),
    };
    low + wide % num
}
