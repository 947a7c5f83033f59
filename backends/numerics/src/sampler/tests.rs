//! The sampler against a naive reference that sorts everything, and against float64 probabilities.

use proptest::prelude::*;

use super::*;
use crate::elementary::exp;

const T1: SamplerParams = SamplerParams {
    temperature: 1.0,
    ..SamplerParams::GREEDY
};

/// A request as plain data.
#[derive(Clone, Debug)]
struct Case {
    logits: Vec<f32>,
    params: SamplerParams,
    counts: Vec<TokenCount>,
    bias: Vec<(u32, f32)>,
    mask: Option<Vec<u32>>,
    position: u64,
    top_logprobs: Option<u32>,
}

impl Case {
    fn plain(logits: &[f32], params: SamplerParams) -> Case {
        Case {
            logits: logits.to_vec(),
            params,
            counts: Vec::new(),
            bias: Vec::new(),
            mask: None,
            position: 0,
            top_logprobs: None,
        }
    }

    fn draw(&self, sampler: &mut Sampler) -> Result<Draw, DrawError> {
        sampler.draw(
            &self.logits,
            &self.params,
            &self.counts,
            &self.bias,
            self.mask.as_deref(),
            self.position,
            self.top_logprobs,
        )
    }
}

/// The sets that the steps leave, as (token, weight) by ascending id, by sorting whole lists.
fn naive_set(case: &Case) -> Vec<(u32, u64)> {
    let p = &case.params;
    let mut logits = case.logits.clone();
    for c in &case.counts {
        let l = &mut logits[c.token as usize];
        if c.in_prompt || c.output > 0 {
            *l = if *l > 0.0 {
                *l / p.repetition_penalty
            } else {
                *l * p.repetition_penalty
            };
        }
        *l = (-p.frequency_penalty).mul_add(c.output as f32, *l);
        *l -= if c.output > 0 {
            p.presence_penalty
        } else {
            0.0
        };
    }
    case.bias.iter().for_each(|&(t, b)| logits[t as usize] += b);
    let allowed = |t: usize| {
        case.mask
            .as_ref()
            .is_none_or(|m| m[t / 32] & (1 << (t % 32)) != 0)
    };
    let mut rest: Vec<(u32, f32)> = (0..logits.len())
        .filter(|&t| allowed(t))
        .map(|t| (t as u32, logits[t]))
        .collect();
    rest.sort_by(|a, b| b.1.partial_cmp(&a.1).expect("finite").then(a.0.cmp(&b.0)));
    if p.temperature == 0.0 {
        rest.truncate(1);
        return rest.iter().map(|r| (r.0, ONE)).collect();
    }
    if p.top_k > 0 {
        rest.truncate(p.top_k as usize);
    }
    let max = rest[0].1;
    let weigh = |l: f32| (f64::from(exp((l - max) / p.temperature)) * ONE as f64).floor() as u64;
    let mut rest: Vec<(u32, u64)> = rest.iter().map(|&(t, l)| (t, weigh(l))).collect();
    if p.top_p < 1.0 {
        let total: u128 = rest.iter().map(|r| u128::from(r.1)).sum();
        let limit = (f64::from(p.top_p) * ONE as f64).floor() as u128 * total;
        let mut before = 0u128;
        let mut kept = 0;
        while kept < rest.len() && (kept == 0 || before * u128::from(ONE) < limit) {
            before += u128::from(rest[kept].1);
            kept += 1;
        }
        rest.truncate(kept);
    }
    let least = (f64::from(p.min_p) * ONE as f64).ceil() as u64;
    rest.retain(|r| r.1 >= least && r.1 > 0);
    rest.sort();
    rest
}

fn naive_draw(case: &Case) -> u32 {
    let set = naive_set(case);
    let total: u128 = set.iter().map(|s| u128::from(s.1)).sum();
    let target = (u128::from(draw_u64(case.params.seed, case.position)) * total) >> 64;
    let mut sum = 0u128;
    for (token, weight) in set {
        sum += u128::from(weight);
        if sum > target {
            return token;
        }
    }
    panic!("no token reaches the target");
}

fn params() -> impl Strategy<Value = SamplerParams> {
    (
        prop_oneof![Just(0.0f32), 0.05f32..3.0, Just(1.0)],
        prop_oneof![Just(0u32), 1u32..60, Just(100_000)],
        prop_oneof![Just(1.0f32), 0.0f32..1.0, Just(0.0)],
        prop_oneof![Just(0.0f32), 0.0f32..0.3, Just(1.0)],
        prop_oneof![
            Just((0.0f32, 0.0f32, 1.0f32)),
            (-2.0f32..2.0, -2.0f32..2.0, 0.5f32..2.0)
        ],
        any::<u64>(),
    )
        .prop_map(
            |(temperature, top_k, top_p, min_p, penalties, seed)| SamplerParams {
                temperature,
                top_k,
                top_p,
                min_p,
                frequency_penalty: penalties.0,
                presence_penalty: penalties.1,
                repetition_penalty: penalties.2,
                seed,
            },
        )
}

fn case() -> impl Strategy<Value = Case> {
    // Coarse logits make ties common; a long row passes the first block of the top-p ranking.
    let fine = prop::collection::vec(-12.0f32..12.0, 1..300);
    let coarse = prop::collection::vec((-6i32..6).prop_map(|x| x as f32 / 2.0), 1..2500);
    let zeros = prop::collection::vec(prop_oneof![Just(0.0f32), Just(-0.0), Just(-1.0)], 1..200);
    (
        prop_oneof![fine, coarse, zeros],
        params(),
        any::<u64>(),
        any::<[u64; 3]>(),
    )
        .prop_map(|(logits, params, position, noise)| {
            let n = logits.len();
            let pick = |i: u64| (draw_u64(noise[0], i) % n as u64) as u32;
            let mut counts: Vec<TokenCount> = (0..noise[0] % 8)
                .map(|i| TokenCount {
                    token: pick(i),
                    in_prompt: i % 2 == 0,
                    output: (i % 3) as u32,
                })
                .collect();
            counts.sort_by_key(|c| c.token);
            counts.dedup_by_key(|c| c.token);
            let bias = (0..noise[1] % 4)
                .map(|i| (pick(100 + i), i as f32 * 3.0 - 4.0))
                .collect();
            let mut words: Vec<u32> = (0..n.div_ceil(32) as u64)
                .map(|w| draw_u64(noise[2], w) as u32)
                .collect();
            // At least one token is allowed; some words are full and some empty.
            words[0] |= 1;
            words
                .iter_mut()
                .skip(1)
                .step_by(3)
                .for_each(|w| *w = u32::MAX);
            words.iter_mut().skip(2).step_by(3).for_each(|w| *w = 0);
            let mask = (noise[2] % 2 == 0).then_some(words);
            let top_logprobs = (noise[1] % 3 == 0).then_some((noise[0] % 25) as u32);
            Case {
                logits,
                params,
                counts,
                bias,
                mask,
                position,
                top_logprobs,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn equals_the_naive_reference_at_every_width(case in case()) {
        let mut first: Option<Draw> = None;
        for level in Level::available() {
            let mut sampler = Sampler::at(level);
            let draw = case.draw(&mut sampler).expect("a valid request");
            prop_assert_eq!(draw.token, naive_draw(&case));
            if case.params.temperature > 0.0 {
                let set: Vec<(u32, u64)> =
                    sampler.candidates.iter().map(|c| (rank::token(c.key), c.weight)).collect();
                prop_assert_eq!(set, naive_set(&case));
            }
            // Scratch memory of another draw must not show.
            prop_assert_eq!(&case.draw(&mut sampler).expect("a valid request"), &draw);
            prop_assert_eq!(first.get_or_insert_with(|| draw.clone()), &draw);
        }
    }

    #[test]
    fn log_probabilities_are_of_the_raw_row(mut case in case(), n in 0u32..25) {
        case.top_logprobs = Some(n);
        let draw = case.draw(&mut Sampler::new()).expect("a valid request");
        let row: Vec<f64> = case.logits.iter().map(|&l| f64::from(l)).collect();
        let log_sum = row.iter().map(|l| l.exp()).sum::<f64>().ln();
        let near = |token: u32, got: f32| {
            (f64::from(got) - (row[token as usize] - log_sum)).abs() < 5e-6
        };
        prop_assert!(near(draw.token, draw.logprob.expect("asked for")));
        let mut ids: Vec<u32> = (0..row.len() as u32).collect();
        ids.sort_by(|&a, &b| row[b as usize].partial_cmp(&row[a as usize]).expect("finite"));
        ids.truncate(n as usize);
        prop_assert_eq!(draw.top.iter().map(|t| t.0).collect::<Vec<_>>(), ids);
        prop_assert!(draw.top.iter().all(|&(token, logprob)| near(token, logprob)));
    }

    #[test]
    fn top_k_equals_sorting(
        row in prop::collection::vec((-50i32..50).prop_map(|x| x as f32), 1..6000),
        k in 1usize..400,
    ) {
        let mut want: Vec<u64> = row.iter().zip(0..).map(|(&x, t)| rank::key(x, t)).collect();
        want.sort_by(|a, b| b.cmp(a));
        want.truncate(k);
        for level in Level::available() {
            let mut keys = Vec::new();
            rank::top_k(level, &row, k, &mut keys);
            keys.sort_by(|a, b| b.cmp(a));
            prop_assert_eq!(&keys, &want);
        }
    }
}

/// Frequencies over many positions lie within 4.5 standard deviations of the float64 softmax.
#[test]
fn draws_follow_the_distribution() {
    let logits = [0.3f32, -1.0, 2.0, 1.1, -0.4, 0.0, 1.9, -3.0];
    for (temperature, seed) in [(1.0f32, 7), (0.6, 8), (1.7, 9)] {
        let mut case = Case::plain(
            &logits,
            SamplerParams {
                temperature,
                seed,
                ..T1
            },
        );
        let mut sampler = Sampler::new();
        let n = 60_000;
        let mut seen = [0u32; 8];
        for position in 0..n {
            case.position = position;
            seen[case.draw(&mut sampler).expect("a valid request").token as usize] += 1;
        }
        let e: Vec<f64> = logits
            .iter()
            .map(|&l| f64::from(l / temperature).exp())
            .collect();
        let total: f64 = e.iter().sum();
        for (i, &count) in seen.iter().enumerate() {
            let p = e[i] / total;
            let sigma = (n as f64 * p * (1.0 - p)).sqrt();
            let off = (f64::from(count) - n as f64 * p).abs();
            assert!(
                off < 4.5 * sigma + 1.0,
                "token {i}: {count} of {n}, expected {p}"
            );
        }
    }
}

#[test]
fn greedy_takes_the_lowest_id_of_the_highest() {
    let mut sampler = Sampler::new();
    for n in [1usize, 2, 16, 100, 151_936] {
        for at in [0, n / 2, n - 1] {
            let mut logits = vec![-1.5; n];
            logits[at] = 3.0;
            logits[n - 1] = 3.0;
            let case = Case::plain(&logits, SamplerParams::GREEDY);
            assert_eq!(case.draw(&mut sampler).map(|d| d.token), Ok(at as u32));
        }
    }
    let case = Case::plain(&[-1.0, -0.0, 0.0], SamplerParams::GREEDY);
    assert_eq!(case.draw(&mut sampler).map(|d| d.token), Ok(1));
}

#[test]
fn every_refusal_has_its_name() {
    let mut sampler = Sampler::new();
    let ok = Case::plain(&[0.0; 40], T1);
    let mut refused = |edit: &dyn Fn(&mut Case)| {
        let mut case = ok.clone();
        edit(&mut case);
        case.draw(&mut sampler).expect_err("a refusal")
    };
    assert_eq!(refused(&|c| c.logits.clear()), DrawError::EmptyRow);
    let infinite = |c: &mut Case| (c.logits[9], c.logits[30]) = (f32::INFINITY, f32::NAN);
    assert_eq!(refused(&infinite), DrawError::NotFinite { token: 9 });
    assert_eq!(
        refused(&|c| c.logits[39] = f32::NAN),
        DrawError::NotFinite { token: 39 }
    );
    let overflow = |c: &mut Case| {
        c.logits[5] = f32::MAX;
        c.bias = vec![(5, f32::MAX)];
    };
    assert_eq!(refused(&overflow), DrawError::NotFinite { token: 5 });
    assert_eq!(
        refused(&|c| c.mask = Some(vec![0, 0])),
        DrawError::NothingAllowed
    );
    // Only bits beyond the vocabulary are set.
    assert_eq!(
        refused(&|c| c.mask = Some(vec![0, !0 << 8])),
        DrawError::NothingAllowed
    );
    let width = DrawError::MaskWidth {
        words: 3,
        expected: 2,
    };
    assert_eq!(refused(&|c| c.mask = Some(vec![!0; 3])), width);
    let unknown = DrawError::UnknownToken {
        token: 40,
        vocab: 40,
    };
    assert_eq!(refused(&|c| c.bias = vec![(40, 1.0)]), unknown);
    let count = TokenCount {
        token: 40,
        in_prompt: true,
        output: 0,
    };
    assert_eq!(refused(&|c| c.counts = vec![count]), unknown);
    let name = |e: DrawError| match e {
        DrawError::BadParameter { name, .. } => name,
        other => panic!("{other}"),
    };
    assert_eq!(
        name(refused(&|c| c.params.temperature = -1.0)),
        "temperature"
    );
    assert_eq!(
        name(refused(&|c| c.params.temperature = f32::NAN)),
        "temperature"
    );
    assert_eq!(name(refused(&|c| c.params.top_p = 1.5)), "top_p");
    assert_eq!(name(refused(&|c| c.params.min_p = f32::NAN)), "min_p");
    assert_eq!(
        name(refused(&|c| c.params.repetition_penalty = 0.0)),
        "repetition_penalty"
    );
    assert_eq!(
        name(refused(&|c| c.params.frequency_penalty = f32::INFINITY)),
        "frequency_penalty"
    );
    assert_eq!(
        unknown.to_string(),
        "token 40 is outside of the vocabulary of 40"
    );
}

#[test]
fn extreme_temperatures_stay_finite() {
    let logits = [-3e38, 3e38, 3e38, 0.0];
    for (temperature, set) in [(1e-38, vec![1, 2]), (f32::from_bits(1), vec![1, 2])] {
        let mut sampler = Sampler::new();
        let case = Case::plain(&logits, SamplerParams { temperature, ..T1 });
        case.draw(&mut sampler).expect("a valid request");
        let left: Vec<u32> = sampler
            .candidates
            .iter()
            .map(|c| rank::token(c.key))
            .collect();
        assert_eq!(left, set);
    }
}

/// The draws of every machine: they change only with a definition.
#[test]
fn draws_are_pinned() {
    let mut sampler = Sampler::new();
    let noise = |i: u64| (draw_u64(5, i) >> 40) as f32 / 1_048_576.0 - 8.0;
    let logits: Vec<f32> = (0..20_000).map(noise).collect();
    let mut pin = 0u64;
    for position in 0..64 {
        let mut case = Case::plain(&logits, SamplerParams { seed: 11, ..T1 });
        case.params.top_k = [0, 40, 5000][position as usize % 3];
        case.params.top_p = [1.0, 0.9][position as usize % 2];
        (case.position, case.top_logprobs) = (position, Some(3));
        let draw = case.draw(&mut sampler).expect("a valid request");
        let logprob = draw.logprob.expect("asked for").to_bits();
        pin = crate::digest::mix64(pin ^ u64::from(draw.token) << 32 ^ u64::from(logprob));
    }
    assert_eq!(
        pin, 0x7b9c_96c3_0ddb_c574,
        "draws differ from those of the law: {pin:#x}"
    );
}
