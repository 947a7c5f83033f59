//! Two settings files, what they differ in, and the files between them. A difference is one dotted key; a list
//! is one value. It must never make a file that mixes a key of one kind with a key of another: where one file
//! has a table and the other a value, the whole is one difference.

use super::search::Subset;
use toml::{Table, Value};

/// One setting in which the files differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The keys that lead to it.
    pub path: Vec<String>,
    /// Its value in the good file; none where it is not there.
    pub good: Option<Value>,
    /// Its value in the bad file.
    pub bad: Option<Value>,
}

impl Difference {
    /// Its dotted key, as TOML writes it.
    pub fn name(&self) -> String {
        let bare = |key: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            !key.is_empty() && key.chars().all(plain)
        };
        let keys = self.path.iter().map(|key| match bare(key) {
            true => key.clone(),
            false => Value::String(key.clone()).to_string(),
        });
        keys.collect::<Vec<String>>().join(".")
    }
}

/// Two files and their differences.
#[derive(Clone, Debug)]
pub struct Ends {
    good: Table,
    bad: Table,
    /// In the order of the good file, then of the bad one.
    pub differences: Vec<Difference>,
}

impl Ends {
    /// Compares two files.
    pub fn new(good: Table, bad: Table) -> Ends {
        let mut differences = Vec::new();
        compare(&good, &bad, &mut Vec::new(), &mut differences);
        Ends {
            good,
            bad,
            differences,
        }
    }

    /// The good file with these differences taken from the bad one.
    pub fn between(&self, subset: &Subset) -> Table {
        let mut table = self.good.clone();
        for idx in subset {
            let difference = &self.differences[*idx];
            match &difference.bad {
                Some(value) => set(&mut table, &difference.path, value),
                None => remove(&mut table, &difference.path, Some(&self.bad)),
            }
        }
        table
    }
}

fn compare(good: &Table, bad: &Table, path: &mut Vec<String>, found: &mut Vec<Difference>) {
    let only_bad = bad.keys().filter(|key| !good.contains_key(*key));
    for key in good.keys().chain(only_bad) {
        let (a, b) = (good.get(key), bad.get(key));
        path.push(key.clone());
        let none = Table::new();
        match (a, b) {
            (Some(Value::Table(a)), Some(Value::Table(b))) => compare(a, b, path, found),
            // The settings of a table that only one file has can be set one by one.
            (Some(Value::Table(a)), None) if !a.is_empty() => compare(a, &none, path, found),
            (None, Some(Value::Table(b))) if !b.is_empty() => compare(&none, b, path, found),
            (Some(a), Some(b)) if is_same(a, b) => {}
            (a, b) => found.push(Difference {
                path: path.clone(),
                good: a.cloned(),
                bad: b.cloned(),
            }),
        }
        path.pop();
    }
}

/// Equal, or written the same: a NaN is no difference.
fn is_same(a: &Value, b: &Value) -> bool {
    a == b || a.to_string() == b.to_string()
}

fn set(table: &mut Table, path: &[String], value: &Value) {
    match path {
        [] => {}
        [key] => {
            table.insert(key.clone(), value.clone());
        }
        [key, rest @ ..] => {
            let entry = table.entry(key.clone());
            let inner = entry.or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

/// Removes a setting, and the tables that are empty for it and that the bad file doesn't have.
fn remove(table: &mut Table, path: &[String], bad: Option<&Table>) {
    let [key, rest @ ..] = path else {
        return;
    };
    if rest.is_empty() {
        table.remove(key);
        return;
    }
    let bad = bad.and_then(|bad| bad.get(key)).and_then(Value::as_table);
    if let Some(Value::Table(inner)) = table.get_mut(key) {
        remove(inner, rest, bad);
        if inner.is_empty() && bad.is_none() {
            table.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(text: &str) -> Table {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn differences_are_dotted_keys() {
        let good = "a = 1\nb = [1, 2]\nc.x = 1\nc.y = 'same'\nd = 1\nf = nan\n[gone]\nz = 1";
        let bad = "a = 1.0\nb = [1, 3]\nc.x = 2\nc.y = 'same'\nf = nan\n[d]\nw = 1\n\
                   [new.'odd key']\nv = true\n[new.empty]";
        let ends = Ends::new(table(good), table(bad));
        let shown = |value: &Option<Value>| match value {
            Some(value) => value.to_string(),
            None => "-".to_owned(),
        };
        let rows: Vec<String> = ends
            .differences
            .iter()
            .map(|d| format!("{}: {} > {}", d.name(), shown(&d.good), shown(&d.bad)))
            .collect();
        let expected = [
            "a: 1 > 1.0",
            "b: [1, 2] > [1, 3]",
            "c.x: 1 > 2",
            "d: 1 > { w = 1 }",
            "gone.z: 1 > -",
            "new.\"odd key\".v: - > true",
            "new.empty: - > {}",
        ];
        assert_eq!(rows, expected);
        let none = Ends::new(table(bad), table(bad));
        assert!(none.differences.is_empty());
    }

    #[test]
    fn files_between() {
        let ends = Ends::new(
            table("a = 1\n[b]\nx = 1\ny = 1"),
            table("a = 2\n[c]\nz = 1"),
        );
        let names: Vec<String> = ends.differences.iter().map(Difference::name).collect();
        assert_eq!(names, ["a", "b.x", "b.y", "c.z"]);
        let rows: &[(&[usize], &str)] = &[
            (&[], "a = 1\n[b]\nx = 1\ny = 1"),
            (&[1], "a = 1\n[b]\ny = 1"),
            (&[1, 2], "a = 1"),
            (&[0, 3], "a = 2\n[b]\nx = 1\ny = 1\n[c]\nz = 1"),
            (&[0, 1, 2, 3], "a = 2\n[c]\nz = 1"),
        ];
        for (subset, expected) in rows {
            let subset: Subset = subset.iter().copied().collect();
            assert_eq!(ends.between(&subset), table(expected), "{subset:?}");
        }
    }

    fn tables() -> impl Strategy<Value = Table> {
        let leaf = prop_oneof![
            (0_i64..3).prop_map(Value::Integer),
            any::<bool>().prop_map(Value::Boolean),
            "[a-b\"\n]{0,2}".prop_map(Value::String),
        ];
        let key = "[a-c .]";
        let value = leaf.prop_recursive(3, 24, 4, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
                proptest::collection::btree_map(key, inner, 0..4)
                    .prop_map(|members| Value::Table(members.into_iter().collect())),
            ]
        });
        proptest::collection::btree_map(key, value, 0..4)
            .prop_map(|members| members.into_iter().collect())
    }

    proptest! {
        #[test]
        fn the_ends_are_the_files_and_all_between_can_be_written(
            good in tables(), bad in tables(), bits in any::<u32>()
        ) {
            let ends = Ends::new(good.clone(), bad.clone());
            let num = ends.differences.len();
            prop_assert_eq!(ends.between(&Subset::new()), good);
            prop_assert_eq!(ends.between(&(0..num).collect()), bad);
            let some: Subset = (0..num).filter(|idx| bits >> (idx % 32) & 1 == 1).collect();
            let between = ends.between(&some);
            let text = toml::to_string(&between).expect("it can be written");
            prop_assert_eq!(table(&text), between);
        }
    }
}
