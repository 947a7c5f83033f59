//! The causal convolution and the recurrent step of a gated delta net.

use lockstep_numerics::elementary::{exp, sigmoid, silu, softplus};
use lockstep_numerics::lanes::{Kernel, Lanes};

/// Taps that a convolution may have.
pub(crate) const CONV_TAPS_MAX: usize = 8;

/// One token of the depthwise convolution: `out[c] = silu(sum over taps of input[tap][c] * weight[tap][c])`,
/// run order over taps, oldest first.
pub(crate) struct ConvSilu<'a> {
    /// One row of `channels` inputs per tap.
    pub(crate) inputs: &'a [&'a [f32]],
    /// (taps, channels)
    pub(crate) weights: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl Kernel for ConvSilu<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let n = self.out.len();
        assert_eq!(
            self.weights.len(),
            self.inputs.len() * n,
            "weights of the taps"
        );
        let whole = n - n % L::WIDTH;
        for i in (0..whole).step_by(L::WIDTH) {
            let mut sum = L::splat(0.0);
            for (tap, input) in self.inputs.iter().enumerate() {
                sum = L::load(&input[i..]).fma(L::load(&self.weights[tap * n + i..]), sum);
            }
            silu(sum).store(&mut self.out[i..]);
        }
        for i in whole..n {
            let taps = self.inputs.iter().enumerate();
            let sum = taps.fold(0.0f32, |sum, (tap, input)| {
                input[i].mul_add(self.weights[tap * n + i], sum)
            });
            self.out[i] = silu(sum);
        }
    }
}

/// Per head: `decay = exp(-rate * softplus(a + bias))`, `beta = sigmoid(b)`.
pub(crate) struct DeltaGates<'a> {
    /// `b` then `a` of all heads; becomes the betas, then the decays.
    pub(crate) gates: &'a mut [f32],
    /// `exp(A_log)`, computed once at load.
    pub(crate) rate: &'a [f32],
    pub(crate) bias: &'a [f32],
}

impl Kernel for DeltaGates<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let n = self.rate.len();
        assert!(self.gates.len() == 2 * n && self.bias.len() == n);
        let (b, a) = self.gates.split_at_mut(n);
        let whole = n - n % L::WIDTH;
        for i in (0..whole).step_by(L::WIDTH) {
            let step = softplus(L::load(&a[i..]).add(L::load(&self.bias[i..])));
            exp(L::load(&self.rate[i..]).mul(step).neg()).store(&mut a[i..]);
            sigmoid(L::load(&b[i..])).store(&mut b[i..]);
        }
        for i in whole..n {
            let step = softplus(a[i] + self.bias[i]);
            a[i] = exp(-(self.rate[i] * step));
            b[i] = sigmoid(b[i]);
        }
    }
}

/// One token of one head. With `S` the state, all sums over keys in run order:
///
/// ```text
/// S' = S * decay                      memory[v] = sum over k of S'[k][v] * key[k]
/// delta[v] = (value[v] - memory[v]) * beta
/// S'' = key[k] * delta[v] + S'[k][v]  out[v] = sum over k of S''[k][v] * query[k]
/// ```
pub(crate) struct DeltaStep<'a> {
    /// `S`, where it is not in `state` already: (key_dim, value_dim). It saves a copy.
    pub(crate) from: Option<&'a [f32]>,
    /// Where `S''` goes: (key_dim, value_dim).
    pub(crate) state: &'a mut [f32],
    pub(crate) query: &'a [f32],
    pub(crate) key: &'a [f32],
    pub(crate) value: &'a [f32],
    pub(crate) decay: f32,
    pub(crate) beta: f32,
    pub(crate) out: &'a mut [f32],
}

impl Kernel for DeltaStep<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let n = self.value.len();
        assert!(self.out.len() == n && self.query.len() == self.key.len());
        assert_eq!(self.state.len(), self.key.len() * n, "state of the head");
        let from = self.from.map_or(self.state.len(), <[f32]>::len);
        assert_eq!(from, self.state.len(), "state before");
        let mut first = 0;
        while first + 4 * L::WIDTH <= n {
            self.columns::<L, 4>(first);
            first += 4 * L::WIDTH;
        }
        while first + L::WIDTH <= n {
            self.columns::<L, 1>(first);
            first += L::WIDTH;
        }
        while first < n {
            self.columns::<f32, 1>(first);
            first += 1;
        }
    }
}

impl DeltaStep<'_> {
    /// `R` registers of columns from `first`. The decayed state is computed in both passes rather than
    /// stored in between: the same product twice costs less than a store and a load.
    #[inline(always)]
    fn columns<L: Lanes, const R: usize>(&mut self, first: usize) {
        let n = self.value.len();
        let decay = L::splat(self.decay);
        let mut memory = [L::splat(0.0); R];
        let before = self.from.unwrap_or(self.state);
        for (row, &key) in before.chunks_exact(n).zip(self.key) {
            let (row, key) = (&row[first..first + R * L::WIDTH], L::splat(key));
            for (r, memory) in memory.iter_mut().enumerate() {
                let state = L::load(&row[r * L::WIDTH..]).mul(decay);
                *memory = state.fma(key, *memory);
            }
        }
        let value = &self.value[first..first + R * L::WIDTH];
        let mut delta = [L::splat(0.0); R];
        for (r, delta) in delta.iter_mut().enumerate() {
            let error = L::load(&value[r * L::WIDTH..]).sub(memory[r]);
            *delta = error.mul(L::splat(self.beta));
        }
        let mut out = [L::splat(0.0); R];
        let keys = self.key.iter().zip(self.query);
        for (idx, (row, (&key, &query))) in self.state.chunks_exact_mut(n).zip(keys).enumerate() {
            let row = &mut row[first..first + R * L::WIDTH];
            let (key, query) = (L::splat(key), L::splat(query));
            let mut state = [L::splat(0.0); R];
            let before = match self.from {
                Some(from) => &from[idx * n + first..][..R * L::WIDTH],
                None => &*row,
            };
            for (r, state) in state.iter_mut().enumerate() {
                *state = L::load(&before[r * L::WIDTH..]).mul(decay);
            }
            for (r, out) in out.iter_mut().enumerate() {
                let state = key.fma(delta[r], state[r]);
                state.store(&mut row[r * L::WIDTH..]);
                *out = state.fma(query, *out);
            }
        }
        let to = &mut self.out[first..first + R * L::WIDTH];
        for (r, out) in out.iter().enumerate() {
            out.store(&mut to[r * L::WIDTH..]);
        }
    }
}
