//! Which runs there are: groups of runs that share their first axes, drawn greedily until each combination
//! of values that has to occur does. The same seed draws the same runs. It must never call a combination
//! impossible that a run could have.

use super::dice::Dice;

/// A value of an axis that is not chosen yet.
const OPEN: u8 = u8::MAX;

/// What there is to choose from.
pub struct Space<'a> {
    /// Values of each axis.
    pub num_values: Vec<usize>,
    /// So many axes, from the first, have one value in a whole group.
    pub num_shared: usize,
    /// Every pair of values of any two axes must occur, and every triple of these axes.
    pub triples: Vec<usize>,
    /// Values that can't occur together, as (axis, value).
    pub forbidden: Vec<Vec<(usize, u8)>>,
    /// Runs of a group with these shared values, at least 1.
    pub group_size: &'a dyn Fn(&[u8]) -> usize,
}

/// Runs that share their first axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Values of the shared axes.
    pub shared: Vec<u8>,
    /// Values of the others, a run each.
    pub members: Vec<Vec<u8>>,
}

/// The runs, and what they cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    /// The runs.
    pub groups: Vec<Group>,
    /// Pairs of values that occur.
    pub num_pairs: usize,
    /// Triples of values that occur.
    pub num_triples: usize,
    /// Combinations that no run can have.
    pub num_impossible: usize,
}

/// Axes whose values must occur in every combination, and where these combinations are counted from.
struct Combination {
    axes: Vec<usize>,
    offset: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Open,
    Covered,
    Impossible,
}

struct Builder<'a> {
    space: &'a Space<'a>,
    combinations: Vec<Combination>,
    /// Indices of the combinations that an axis is part of.
    of_axis: Vec<Vec<usize>>,
    targets: Vec<Target>,
    num_open: usize,
    dice: Dice,
}

/// Draws runs until every combination is covered, and then at random until there are so many.
pub fn cover(space: &Space<'_>, seed: u64, num_runs_min: usize) -> Cover {
    let mut builder = Builder::new(space, seed);
    let mut groups: Vec<Group> = Vec::new();
    let mut num_runs = 0;
    while builder.num_open > 0 || num_runs < num_runs_min {
        let group = builder.draw_group();
        num_runs += group.members.len();
        groups.push(group);
    }
    let covered = |num_axes: usize| {
        let of_size = builder
            .combinations
            .iter()
            .filter(|combination| combination.axes.len() == num_axes);
        let targets = of_size.flat_map(|combination| builder.targets_of(combination));
        targets.filter(|target| **target == Target::Covered).count()
    };
    let impossible = |target: &&Target| **target == Target::Impossible;
    Cover {
        num_pairs: covered(2),
        num_triples: covered(3),
        num_impossible: builder.targets.iter().filter(impossible).count(),
        groups,
    }
}

impl<'a> Builder<'a> {
    fn new(space: &'a Space<'a>, seed: u64) -> Builder<'a> {
        let num_axes = space.num_values.len();
        let mut builder = Builder {
            space,
            combinations: Vec::new(),
            of_axis: vec![Vec::new(); num_axes],
            targets: Vec::new(),
            num_open: 0,
            dice: Dice::new(seed, 0),
        };
        for a in 0..num_axes {
            for b in a + 1..num_axes {
                builder.add(vec![a, b]);
            }
        }
        let triples = &space.triples;
        for (idx, &a) in triples.iter().enumerate() {
            for (idx, &b) in triples.iter().enumerate().skip(idx + 1) {
                for &c in &triples[idx + 1..] {
                    builder.add(vec![a, b, c]);
                }
            }
        }
        builder.num_open = builder
            .targets
            .iter()
            .filter(|target| **target == Target::Open)
            .count();
        builder
    }

    /// Adds the combinations of these axes.
    fn add(&mut self, axes: Vec<usize>) {
        let num: usize = axes
            .iter()
            .map(|axis| self.space.num_values[*axis])
            .product();
        let offset = self.targets.len();
        for &axis in &axes {
            self.of_axis[axis].push(self.combinations.len());
        }
        let combination = Combination { axes, offset };
        for idx in 0..num {
            let values = self.values(&combination, idx);
            let target = match self.can_complete(&values) {
                true => Target::Open,
                false => Target::Impossible,
            };
            self.targets.push(target);
        }
        self.combinations.push(combination);
    }

    fn targets_of(&self, combination: &Combination) -> impl Iterator<Item = &Target> {
        let axes = combination.axes.iter();
        let num: usize = axes.map(|axis| self.space.num_values[*axis]).product();
        self.targets[combination.offset..combination.offset + num].iter()
    }

    /// The values of a combination's target, the other axes open.
    fn values(&self, combination: &Combination, idx: usize) -> Vec<u8> {
        let mut values = vec![OPEN; self.space.num_values.len()];
        let mut rest = idx;
        for &axis in combination.axes.iter().rev() {
            let num = self.space.num_values[axis];
            values[axis] = (rest % num) as u8;
            rest /= num;
        }
        values
    }

    /// The target of a combination that these values have; None while one of its axes is open.
    fn target(&self, combination: &Combination, values: &[u8]) -> Option<usize> {
        let mut idx = 0;
        for &axis in &combination.axes {
            if values[axis] == OPEN {
                return None;
            }
            idx = idx * self.space.num_values[axis] + usize::from(values[axis]);
        }
        Some(combination.offset + idx)
    }

    fn is_allowed(&self, values: &[u8]) -> bool {
        let mut rules = self.space.forbidden.iter();
        rules.all(|rule| rule.iter().any(|&(axis, value)| values[axis] != value))
    }

    /// Whether some run has these values.
    fn can_complete(&self, values: &[u8]) -> bool {
        if !self.is_allowed(values) {
            return false;
        }
        // Only axes that a rule names can stand in the way.
        let named = |axis: usize| {
            let mut parts = self.space.forbidden.iter().flatten();
            parts.any(|part| part.0 == axis)
        };
        let open = (0..values.len()).find(|&axis| values[axis] == OPEN && named(axis));
        let Some(axis) = open else {
            return true;
        };
        (0..self.space.num_values[axis]).any(|value| {
            let mut next = values.to_vec();
            next[axis] = value as u8;
            self.can_complete(&next)
        })
    }

    /// Open targets that giving an axis its value would cover.
    fn gain(&self, axis: usize, values: &[u8]) -> usize {
        let combinations = self.of_axis[axis].iter();
        let targets = combinations.filter_map(|idx| self.target(&self.combinations[*idx], values));
        targets
            .filter(|idx| self.targets[*idx] == Target::Open)
            .count()
    }

    /// Chooses the open ones of these axes, in any order, each for the most that it covers. Returns how much
    /// that is.
    fn fill(&mut self, values: &mut [u8], axes: std::ops::Range<usize>) -> usize {
        let mut order: Vec<usize> = axes.filter(|&axis| values[axis] == OPEN).collect();
        self.dice.shuffle(&mut order);
        let mut total = 0;
        for axis in order {
            let num = self.space.num_values[axis];
            let first = self.dice.below(num);
            let mut best: Option<(usize, u8)> = None;
            for idx in 0..num {
                values[axis] = ((first + idx) % num) as u8;
                if !self.can_complete(values) {
                    continue;
                }
                let gain = self.gain(axis, values);
                if best.is_none_or(|(most, _)| gain > most) {
                    best = Some((gain, values[axis]));
                }
            }
            // What can be completed has a value for each of its axes.
            let (gain, value) = best.unwrap_or((0, 0));
            values[axis] = value;
            total += gain;
        }
        total
    }

    /// An open target that fits these values, from a random one on; None if there is none.
    fn open_target(&mut self, values: &[u8]) -> Option<Vec<u8>> {
        let first = self.dice.below(self.combinations.len());
        for idx in 0..self.combinations.len() {
            let combination = &self.combinations[(first + idx) % self.combinations.len()];
            let targets = self.targets_of(combination).enumerate();
            for (idx, _) in targets.filter(|(_, target)| **target == Target::Open) {
                let wanted = self.values(combination, idx);
                let mut both = values.to_vec();
                let agrees = wanted.iter().zip(&mut both).all(|(&wanted, value)| {
                    let fits = wanted == OPEN || *value == OPEN || *value == wanted;
                    if *value == OPEN {
                        *value = wanted;
                    }
                    fits
                });
                if agrees && self.can_complete(&both) {
                    return Some(both);
                }
            }
        }
        None
    }

    fn draw_group(&mut self) -> Group {
        let (num_shared, num_axes) = (self.space.num_shared, self.space.num_values.len());
        let nothing = vec![OPEN; num_axes];
        let mut best: Option<(usize, Vec<u8>)> = None;
        for _ in 0..6 {
            let begun = self.open_target(&nothing);
            let mut values = begun.unwrap_or_else(|| nothing.clone());
            let is_free = values == nothing;
            values[num_shared..].fill(OPEN);
            if is_free {
                // Everything is covered: any values will do.
                self.dice_fill(&mut values, 0..num_shared);
            }
            let gain = self.fill(&mut values, 0..num_shared);
            if best.as_ref().is_none_or(|(most, _)| gain > *most) {
                best = Some((gain, values));
            }
        }
        let (_, shared) = best.unwrap_or((0, nothing));
        let num_members = (self.space.group_size)(&shared[..num_shared]).max(1);
        let members = (0..num_members)
            .map(|_| {
                let begun = self.open_target(&shared);
                let mut values = begun.unwrap_or_else(|| shared.clone());
                if values == shared {
                    self.dice_fill(&mut values, num_shared..num_axes);
                }
                self.fill(&mut values, num_shared..num_axes);
                self.mark(&values);
                values[num_shared..].to_vec()
            })
            .collect();
        Group {
            shared: shared[..num_shared].to_vec(),
            members,
        }
    }

    /// Gives axes any values, as far as they can be completed.
    fn dice_fill(&mut self, values: &mut [u8], axes: std::ops::Range<usize>) {
        for axis in axes {
            values[axis] = self.dice.below(self.space.num_values[axis]) as u8;
            if !self.can_complete(values) {
                values[axis] = OPEN;
            }
        }
    }

    fn mark(&mut self, values: &[u8]) {
        for combination in &self.combinations {
            if let Some(idx) = self.target(combination, values)
                && self.targets[idx] == Target::Open
            {
                self.targets[idx] = Target::Covered;
                self.num_open -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
