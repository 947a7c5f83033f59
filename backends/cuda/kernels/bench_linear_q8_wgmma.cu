// The kernel of linear_q8_wgmma.cu with a free order of sums: what a benchmark compares that one with, and nothing
// else. No model is ever computed with it.
#define FREE_ORDER
#ifdef LOCKSTEP_EMULATE
// There all files are one library, where a function's name is taken once.
#define linear_q8_wgmma linear_q8_wgmma_free
#endif
#include "linear_q8_wgmma.cu"
