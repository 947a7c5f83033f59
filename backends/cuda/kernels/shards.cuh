// How the groups of a linear layer are joined: run order inside a shard, a balanced tree of neighbours across shards.
#include "common.cuh"

// The left sides of a tree that are still waiting for their right ones, one per level.
struct ShardTree {
  float level0, level1, level2;
};

// Adds the sum of a shard, in ascending order of shards; returns the sum of the subtree that it closes, which is that
// of all shards after the last.
__device__ __forceinline__ float close_shard(ShardTree* tree, int shard, float sum) {
  if (!(shard & 1)) {
    tree->level0 = sum;
    return sum;
  }
  sum = __fadd_rn(tree->level0, sum);
  if (!(shard & 2)) {
    tree->level1 = sum;
    return sum;
  }
  sum = __fadd_rn(tree->level1, sum);
  if (!(shard & 4)) {
    tree->level2 = sum;
    return sum;
  }
  return __fadd_rn(tree->level2, sum);
}

// One past the last group of a shard. A group that is not full belongs to the last shard.
__device__ __forceinline__ int shard_end(int k, int num_shards, int shard) {
  if (shard + 1 == num_shards) return (k + GROUP - 1) / GROUP;
  return (shard + 1) * (k / GROUP / num_shards);
}
