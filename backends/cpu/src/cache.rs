//! What a backend keeps between steps: blocks of keys and values, and rows of recurrent state. Both are
//! found by id alone. Nothing here knows a sequence, a length or an acceptance.

use crate::disjoint::Disjoint;
use lockstep_step::{BLOCK_LEN, BlockId, RowId};

/// Positions in a block.
pub(crate) const BLOCK: usize = BLOCK_LEN as usize;

/// What is in a slot that was never written. Nobody may read it, which the simulation makes sure of.
const UNWRITTEN: f32 = if cfg!(planted) { f32::NAN } else { 0.0 };

/// Keys and values of every attention layer, in blocks of 64 positions.
pub(crate) struct KvCache {
    num_blocks: usize,
    num_heads: usize,
    head_dim: usize,
    // (layer, block, head, head_dim, 64)
    keys: Vec<f32>,
    // (layer, block, head, 64, head_dim)
    values: Vec<f32>,
}

impl KvCache {
    /// Memory is claimed from the system when a block is first written, not here.
    pub(crate) fn new(
        num_layers: usize,
        num_blocks: usize,
        num_heads: usize,
        head_dim: usize,
    ) -> Self {
        let len = num_layers * num_blocks * num_heads * head_dim * BLOCK;
        KvCache {
            num_blocks,
            num_heads,
            head_dim,
            keys: vec![UNWRITTEN; len],
            values: vec![UNWRITTEN; len],
        }
    }

    /// Bytes that all blocks together can take.
    pub(crate) fn num_bytes(&self) -> usize {
        (self.keys.len() + self.values.len()) * size_of::<f32>()
    }

    #[cfg(test)]
    pub(crate) fn contents(&self) -> impl Iterator<Item = f32> {
        self.keys.iter().chain(&self.values).copied()
    }

    fn at(&self, layer: usize, block: BlockId, head: usize) -> usize {
        assert!((block.0 as usize) < self.num_blocks && head < self.num_heads);
        ((layer * self.num_blocks + block.0 as usize) * self.num_heads + head)
            * self.head_dim
            * BLOCK
    }

    /// Keys of one block and head: (head_dim, 64).
    pub(crate) fn keys(&self, layer: usize, block: BlockId, head: usize) -> &[f32] {
        let at = self.at(layer, block, head);
        &self.keys[at..at + self.head_dim * BLOCK]
    }

    /// Values of one block and head: (64, head_dim).
    pub(crate) fn values(&self, layer: usize, block: BlockId, head: usize) -> &[f32] {
        let at = self.at(layer, block, head);
        &self.values[at..at + self.head_dim * BLOCK]
    }

    /// A view through which the tasks of one loop write slots.
    pub(crate) fn writer(&mut self, layer: usize) -> KvWriter<'_> {
        let (num_blocks, num_heads, head_dim) = (self.num_blocks, self.num_heads, self.head_dim);
        KvWriter {
            layer,
            num_blocks,
            num_heads,
            head_dim,
            keys: Disjoint::new(&mut self.keys),
            values: Disjoint::new(&mut self.values),
        }
    }
}

/// Writes slots of one layer.
pub(crate) struct KvWriter<'a> {
    layer: usize,
    num_blocks: usize,
    num_heads: usize,
    head_dim: usize,
    keys: Disjoint<'a>,
    values: Disjoint<'a>,
}

impl KvWriter<'_> {
    /// Writes the key and the value of one head at one slot.
    ///
    /// # Safety
    /// Each slot and head is written by at most one task of a loop.
    pub(crate) unsafe fn write(
        &self,
        (block, offset): (BlockId, u32),
        head: usize,
        key: &[f32],
        value: &[f32],
    ) {
        assert!((block.0 as usize) < self.num_blocks && head < self.num_heads);
        assert!(key.len() == self.head_dim && value.len() == self.head_dim);
        let offset = offset as usize;
        assert!(offset < BLOCK);
        let at = ((self.layer * self.num_blocks + block.0 as usize) * self.num_heads + head)
            * self.head_dim
            * BLOCK;
        for (dim, &key) in key.iter().enumerate() {
            // SAFETY: one float of this slot; the caller owns the slot.
            unsafe { self.keys.slice(at + dim * BLOCK + offset, 1)[0] = key };
        }
        // SAFETY: the floats of this slot; the caller owns the slot.
        let to = unsafe {
            self.values
                .slice(at + offset * self.head_dim, self.head_dim)
        };
        to.copy_from_slice(value);
    }
}

/// Hidden states of a width, one per slot.
pub(crate) struct HiddenCache {
    num_blocks: usize,
    width: usize,
    // (block, 64, width)
    data: Vec<f32>,
}

impl HiddenCache {
    /// Memory is claimed from the system when a block is first written, not here.
    pub(crate) fn new(num_blocks: usize, width: usize) -> HiddenCache {
        HiddenCache {
            num_blocks,
            width,
            data: vec![0.0; num_blocks * BLOCK * width],
        }
    }

    /// Bytes that all blocks together can take.
    pub(crate) fn num_bytes(&self) -> usize {
        self.data.len() * size_of::<f32>()
    }

    #[cfg(test)]
    pub(crate) fn contents(&self) -> impl Iterator<Item = f32> {
        self.data.iter().copied()
    }

    fn at(&self, (block, offset): (BlockId, u32)) -> usize {
        let (block, offset) = (block.0 as usize, offset as usize);
        assert!(block < self.num_blocks && offset < BLOCK);
        (block * BLOCK + offset) * self.width
    }

    pub(crate) fn read(&self, slot: (BlockId, u32)) -> &[f32] {
        let at = self.at(slot);
        &self.data[at..at + self.width]
    }

    pub(crate) fn write(&mut self, slot: (BlockId, u32), value: &[f32]) {
        let at = self.at(slot);
        self.data[at..at + self.width].copy_from_slice(value);
    }
}

/// Shape of the recurrent state of one delta net layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateShape {
    /// Earlier inputs that the convolution looks back on: its kernel width less one.
    pub(crate) conv_taps: usize,
    /// Channels of the convolution.
    pub(crate) channels: usize,
    /// Value heads.
    pub(crate) num_heads: usize,
    /// Width of a key.
    pub(crate) key_dim: usize,
    /// Width of a value.
    pub(crate) value_dim: usize,
}

impl StateShape {
    /// Floats of the convolution's state: (conv_taps, channels), oldest input first.
    pub(crate) fn conv_len(&self) -> usize {
        self.conv_taps * self.channels
    }

    /// Floats of one head's state: (key_dim, value_dim).
    pub(crate) fn head_len(&self) -> usize {
        self.key_dim * self.value_dim
    }

    fn len(&self) -> usize {
        self.conv_len() + self.num_heads * self.head_len()
    }
}

/// Rows of recurrent state of every delta net layer.
pub(crate) struct StateRows {
    shape: StateShape,
    num_rows: usize,
    // (layer, row, convolution then heads)
    data: Vec<f32>,
    // How many tokens the step that wrote a row accepts where a sequence goes on from it: what a faulty kernel keeps.
    #[cfg(planted)]
    accepted: Vec<usize>,
}

impl StateRows {
    /// Memory is claimed from the system when a row is first written, not here.
    pub(crate) fn new(num_layers: usize, num_rows: usize, shape: StateShape) -> StateRows {
        StateRows {
            shape,
            num_rows,
            data: vec![0.0; num_layers * num_rows * shape.len()],
            #[cfg(planted)]
            accepted: vec![0; num_rows],
        }
    }

    /// The rows of a model without recurrent state.
    pub(crate) fn none() -> StateRows {
        let shape = StateShape {
            conv_taps: 0,
            channels: 0,
            num_heads: 0,
            key_dim: 0,
            value_dim: 0,
        };
        StateRows::new(0, 0, shape)
    }

    /// Bytes that all rows together can take.
    pub(crate) fn num_bytes(&self) -> usize {
        self.data.len() * size_of::<f32>()
    }

    #[cfg(test)]
    pub(crate) fn contents(&self) -> impl Iterator<Item = f32> {
        self.data.iter().copied()
    }

    /// How many tokens a step accepted after which a sequence goes on from this row.
    #[cfg(planted)]
    pub(crate) fn accepted(&mut self, row: RowId) -> &mut usize {
        &mut self.accepted[row.0 as usize]
    }

    /// A view of one layer's rows, for the tasks of one loop.
    pub(crate) fn layer(&mut self, layer: usize) -> LayerRows<'_> {
        let len = self.num_rows * self.shape.len();
        LayerRows {
            shape: self.shape,
            num_rows: self.num_rows,
            data: Disjoint::new(&mut self.data[layer * len..(layer + 1) * len]),
        }
    }
}

/// The rows of one layer.
pub(crate) struct LayerRows<'a> {
    shape: StateShape,
    num_rows: usize,
    data: Disjoint<'a>,
}

impl LayerRows<'_> {
    fn at(&self, row: RowId) -> usize {
        assert!(
            (row.0 as usize) < self.num_rows,
            "row {row} of {}",
            self.num_rows
        );
        row.0 as usize * self.shape.len()
    }

    /// The convolution's state in a row, to read: (conv_taps, channels).
    ///
    /// # Safety
    /// While the result lives, nothing may write this part of the row.
    pub(crate) unsafe fn conv(&self, row: RowId) -> &[f32] {
        // SAFETY: the caller's promise is the same.
        unsafe { self.data.read(self.at(row), self.shape.conv_len()) }
    }

    /// The convolution's state in a row, to write.
    ///
    /// # Safety
    /// While the result lives, nothing else may hold this part of the row.
    #[expect(clippy::mut_from_ref, reason = "see Safety")]
    pub(crate) unsafe fn conv_mut(&self, row: RowId) -> &mut [f32] {
        // SAFETY: the caller's promise is the same.
        unsafe { self.data.slice(self.at(row), self.shape.conv_len()) }
    }

    /// One head's state in a row, to read: (key_dim, value_dim).
    ///
    /// # Safety
    /// While the result lives, nothing may write this head of the row.
    pub(crate) unsafe fn head(&self, row: RowId, head: usize) -> &[f32] {
        // SAFETY: the caller's promise is the same.
        unsafe {
            self.data
                .read(self.head_at(row, head), self.shape.head_len())
        }
    }

    /// One head's state in a row, to write.
    ///
    /// # Safety
    /// While the result lives, nothing else may hold this head of the row.
    #[expect(clippy::mut_from_ref, reason = "see Safety")]
    pub(crate) unsafe fn head_mut(&self, row: RowId, head: usize) -> &mut [f32] {
        // SAFETY: the caller's promise is the same.
        unsafe {
            self.data
                .slice(self.head_at(row, head), self.shape.head_len())
        }
    }

    fn head_at(&self, row: RowId, head: usize) -> usize {
        assert!(head < self.shape.num_heads, "head {head}");
        self.at(row) + self.shape.conv_len() + head * self.shape.head_len()
    }
}
