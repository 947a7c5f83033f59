// The kernels of linear_q8.cu with a free order of sums: what a benchmark compares those with, and nothing else. No
// model is ever computed with them.
#define FREE_ORDER
#ifdef LOCKSTEP_EMULATE
// There all files are one library, where a function's name is taken once.
#define linear_q8_few linear_q8_few_free
#define linear_q8_many linear_q8_many_free
#endif
#include "linear_q8.cu"
