//! A plain recogniser, the first half of a second witness for masks: rules over bytes and tags, run as the set of
//! all ways to go on. It shares nothing with the crate, and is as slow as it is simple.

use lockstep_step::TokenId;
use std::collections::BTreeSet;

/// A rule's place in its [`Rules`].
pub type RuleId = usize;

/// One way to match some bytes and tags.
#[derive(Clone, Debug)]
enum Rule {
    /// One byte of these, both ends included.
    Bytes(Vec<(u8, u8)>),
    /// A token that is matched by its id.
    Tag(TokenId),
    Seq(Vec<RuleId>),
    Alt(Vec<RuleId>),
    /// So many times; the rule itself matches something.
    Repeat {
        item: RuleId,
        min: u32,
        max: Option<u32>,
    },
    Text(TextRule),
    /// Named before it is known.
    Later,
}

/// Text as it is: well-formed UTF-8 of a number of characters, without some substrings, and not read as
/// something other than text.
#[derive(Clone, Debug)]
pub struct TextRule {
    pub min: u32,
    pub max: Option<u32>,
    pub without: Vec<&'static str>,
    /// Whether a whole text reads as something else.
    pub reads_as_other: fn(Kinds, &str) -> bool,
    /// Whether all texts that begin like this do.
    pub begins_other: fn(Kinds, &str) -> bool,
    pub kinds: Kinds,
}

/// What raw text may be read as beside text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    pub null: bool,
    pub boolean: bool,
    pub integer: bool,
    pub fraction: bool,
    pub array: bool,
    pub object: bool,
}

impl TextRule {
    /// The characters so far, a cut one at the end counted as one; None if no text begins like this.
    fn num_chars(&self, bytes: &[u8]) -> Option<(u32, bool)> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Some((text.chars().count() as u32, true)),
            Err(error) if error.error_len().is_none() => {
                let whole = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
                Some((whole.chars().count() as u32 + 1, false))
            }
            Err(_) => None,
        }
    }

    fn is_whole(&self, bytes: &[u8]) -> bool {
        let Some((num_chars, true)) = self.num_chars(bytes) else {
            return false;
        };
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        num_chars >= self.min && !(self.reads_as_other)(self.kinds, text)
    }

    fn may_go_on(&self, bytes: &[u8]) -> bool {
        let Some((num_chars, is_cut)) = self.num_chars(bytes).map(|(num, whole)| (num, !whole))
        else {
            return false;
        };
        let text = String::from_utf8_lossy(bytes);
        if self.max.is_some_and(|max| num_chars > max)
            || self.without.iter().any(|tag| text.contains(tag))
            || (self.begins_other)(self.kinds, &text)
        {
            return false;
        }
        // With room for one more letter any text can become one that reads as itself.
        is_cut || self.max.is_none_or(|max| num_chars < max) || self.is_whole(bytes)
    }
}

/// What stands at the front of a way to go on, and behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Rule(RuleId),
    /// A repeat of which so many are done.
    Again(RuleId, u32),
    /// Text of which this much is there.
    Text(RuleId, Vec<u8>),
}

/// One way to go on; the next item last.
type Way = Vec<Item>;

/// Where a recogniser stands: all ways to go on, each of which can reach the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ways(BTreeSet<Way>);

impl Ways {
    pub fn is_dead(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the end is one of them.
    pub fn may_end(&self) -> bool {
        self.0.contains(&Vec::new())
    }
}

/// A grammar.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Whether each matches anything at all.
    matches: Vec<bool>,
}

impl Rules {
    fn add(&mut self, rule: Rule) -> RuleId {
        self.rules.push(rule);
        self.rules.len() - 1
    }

    pub fn bytes(&mut self, ranges: &[(u8, u8)]) -> RuleId {
        self.add(Rule::Bytes(ranges.to_vec()))
    }

    pub fn tag(&mut self, token: TokenId) -> RuleId {
        self.add(Rule::Tag(token))
    }

    pub fn seq(&mut self, parts: &[RuleId]) -> RuleId {
        self.add(Rule::Seq(parts.to_vec()))
    }

    pub fn alt(&mut self, choices: &[RuleId]) -> RuleId {
        self.add(Rule::Alt(choices.to_vec()))
    }

    pub fn repeat(&mut self, item: RuleId, min: u32, max: Option<u32>) -> RuleId {
        self.add(Rule::Repeat { item, min, max })
    }

    pub fn optional(&mut self, item: RuleId) -> RuleId {
        self.repeat(item, 0, Some(1))
    }

    pub fn text(&mut self, text: TextRule) -> RuleId {
        self.add(Rule::Text(text))
    }

    pub fn literal(&mut self, text: &str) -> RuleId {
        let bytes: Vec<RuleId> = text.bytes().map(|b| self.bytes(&[(b, b)])).collect();
        self.seq(&bytes)
    }

    /// A rule that is said later.
    pub fn later(&mut self) -> RuleId {
        self.add(Rule::Later)
    }

    pub fn say(&mut self, later: RuleId, what: RuleId) {
        assert!(matches!(self.rules[later], Rule::Later), "said already");
        self.rules[later] = Rule::Seq(vec![what]);
    }

    /// The start of a walk through a rule.
    pub fn begin(&mut self, rule: RuleId) -> Ways {
        self.find_matches();
        let mut ways = BTreeSet::new();
        self.expand(vec![Item::Rule(rule)], &mut ways);
        Ways(ways)
    }

    /// Which rules match anything, by going round until nothing new is found.
    fn find_matches(&mut self) {
        let mut matches = vec![false; self.rules.len()];
        loop {
            let before = matches.clone();
            for (id, rule) in self.rules.iter().enumerate() {
                matches[id] = match rule {
                    Rule::Bytes(ranges) => !ranges.is_empty(),
                    Rule::Tag(_) => true,
                    Rule::Seq(parts) => parts.iter().all(|&part| matches[part]),
                    Rule::Alt(choices) => choices.iter().any(|&choice| matches[choice]),
                    Rule::Repeat { item, min, .. } => *min == 0 || matches[*item],
                    Rule::Text(text) => text.may_go_on(b""),
                    Rule::Later => panic!("rule {id} was never said"),
                };
            }
            if matches == before {
                self.matches = matches;
                return;
            }
        }
    }

    /// Unfolds a way until it begins with something that takes a byte or a tag, or is the end.
    fn expand(&self, way: Way, out: &mut BTreeSet<Way>) {
        let mut pending = vec![way];
        let mut seen = BTreeSet::new();
        while let Some(mut way) = pending.pop() {
            let Some(first) = way.last().cloned() else {
                out.insert(way);
                continue;
            };
            if !seen.insert(way.clone()) {
                continue;
            }
            match first {
                Item::Rule(id) if !self.matches[id] => {}
                Item::Rule(id) => match &self.rules[id] {
                    Rule::Bytes(_) | Rule::Tag(_) => {
                        out.insert(way);
                    }
                    Rule::Seq(parts) => {
                        way.pop();
                        way.extend(parts.iter().rev().map(|&part| Item::Rule(part)));
                        pending.push(way);
                    }
                    Rule::Alt(choices) => {
                        way.pop();
                        for &choice in choices {
                            let mut chosen = way.clone();
                            chosen.push(Item::Rule(choice));
                            pending.push(chosen);
                        }
                    }
                    Rule::Repeat { .. } => replace(way, &[Item::Again(id, 0)], &mut pending),
                    Rule::Text(_) => {
                        replace(way, &[Item::Text(id, Vec::new())], &mut pending);
                    }
                    Rule::Later => panic!("rule {id} was never said"),
                },
                Item::Again(id, done) => {
                    let Rule::Repeat { item, min, max } = self.rules[id] else {
                        panic!("rule {id} is no repeat")
                    };
                    if done >= min {
                        replace(way.clone(), &[], &mut pending);
                    }
                    if self.matches[item] && max.is_none_or(|max| done < max) {
                        // Without an upper bound all that counts is whether the lower one is reached.
                        let then = match max {
                            None => (done + 1).min(min),
                            Some(_) => done + 1,
                        };
                        let items = [Item::Again(id, then), Item::Rule(item)];
                        replace(way, &items, &mut pending);
                    }
                }
                Item::Text(id, bytes) => {
                    if self.text_rule(id).is_whole(&bytes) {
                        replace(way.clone(), &[], &mut pending);
                    }
                    out.insert(way);
                }
            }
        }
    }

    fn text_rule(&self, id: RuleId) -> &TextRule {
        match &self.rules[id] {
            Rule::Text(text) => text,
            other => panic!("rule {id} is {other:?}"),
        }
    }

    /// After one byte.
    pub fn byte(&self, ways: &Ways, byte: u8) -> Ways {
        let mut out = BTreeSet::new();
        for way in &ways.0 {
            match way.last() {
                Some(Item::Rule(id)) => {
                    if let Rule::Bytes(ranges) = &self.rules[*id]
                        && ranges
                            .iter()
                            .any(|(low, high)| (*low..=*high).contains(&byte))
                    {
                        self.expand(way[..way.len() - 1].to_vec(), &mut out);
                    }
                }
                Some(Item::Text(id, bytes)) => {
                    let longer = [&bytes[..], &[byte]].concat();
                    if self.text_rule(*id).may_go_on(&longer) {
                        let mut way = way[..way.len() - 1].to_vec();
                        way.push(Item::Text(*id, longer));
                        self.expand(way, &mut out);
                    }
                }
                _ => {}
            }
        }
        Ways(out)
    }

    /// After a token that is matched by its id.
    pub fn by_id(&self, ways: &Ways, token: TokenId) -> Ways {
        let mut out = BTreeSet::new();
        for way in &ways.0 {
            if let Some(Item::Rule(id)) = way.last()
                && matches!(self.rules[*id], Rule::Tag(tag) if tag == token)
            {
                self.expand(way[..way.len() - 1].to_vec(), &mut out);
            }
        }
        Ways(out)
    }
}

/// Puts items in the place of a way's first one.
fn replace(mut way: Way, items: &[Item], pending: &mut Vec<Way>) {
    way.pop();
    way.extend_from_slice(items);
    pending.push(way);
}

#[test]
fn a_plain_grammar_is_recognised() {
    let mut rules = Rules::default();
    let digit = rules.bytes(&[(b'0', b'9')]);
    let digits = rules.repeat(digit, 2, Some(3));
    let nothing = rules.alt(&[]);
    let tag = rules.tag(TokenId(7));
    let ab = rules.literal("ab");
    let list = rules.later();
    let more = rules.seq(&[ab, list]);
    let dead = rules.seq(&[ab, nothing]);
    let choice = rules.alt(&[more, tag, dead]);
    rules.say(list, choice);
    let whole = rules.seq(&[digits, list]);
    let start = rules.begin(whole);
    let after = |text: &str| {
        text.bytes()
            .fold(start.clone(), |ways, byte| rules.byte(&ways, byte))
    };
    assert!(after("1a").is_dead() && after("1234").is_dead() && !after("123").is_dead());
    assert!(!after("12abab").may_end() && !after("12aba").is_dead());
    assert!(rules.by_id(&after("12abab"), TokenId(7)).may_end());
    assert!(rules.by_id(&after("12a"), TokenId(7)).is_dead());
    assert!(rules.by_id(&after("12"), TokenId(8)).is_dead());
}
