// Generated from backends/numerics/src/coefficients.rs, which has the words to them: a test
// compares the two, and renews this file with BLESS=1. Arrays run from the highest power to the
// lowest.
#define SHIFT 0x1.800000p+23f
#define LOG2_E 0x1.715476p+0f
#define LN2_HI 0x1.62e400p-1f
#define LN2_LO 0x1.7f7d1cp-20f
#define EXP_ARG_MAX 0x1.640000p+6f
#define EXP_ARG_MIN (-0x1.a00000p+6f)
#define SQRT_HALF_BITS 0x3f3504f3u
#define EXP_COEFFICIENTS \
  0x1.6a2314p-10f, \
  0x1.123a8ep-7f, \
  0x1.5558f6p-5f, \
  0x1.555490p-3f, \
  0x1.fffffcp-2f
#define LOG_COEFFICIENTS \
  0x1.137570p-4f, \
  -0x1.de555cp-4f, \
  0x1.e781f2p-4f, \
  -0x1.fc3200p-4f, \
  0x1.232cb8p-3f, \
  -0x1.555ab8p-3f, \
  0x1.99a548p-3f, \
  -0x1.000012p-2f, \
  0x1.555546p-2f, \
  -0x1.000000p-1f
// Of the digest.
#define INDEX_FACTOR 0x9e3779b97f4a7c15ull
#define MIX_1 0xbf58476d1ce4e5b9ull
#define MIX_2 0x94d049bb133111ebull
