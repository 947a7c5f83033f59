// Functions whose result on the device is an approximation, or depends on its version: a kernel
// that says one of these words does not compile on the host. Those in double precision are simply
// not declared, because their names are words that a kernel may want for something else.
#pragma once
#pragma GCC poison expf exp2f exp10f expm1f logf log2f log10f log1pf powf
#pragma GCC poison sinf cosf tanf sincosf sinpif cospif tanhf sinhf coshf asinf acosf atanf atan2f
#pragma GCC poison rsqrtf rsqrt cbrtf rcbrtf hypotf erff erfcf tgammaf lgammaf normcdff
#pragma GCC poison __expf __exp10f __logf __log2f __log10f __powf __sinf __cosf __tanf __sincosf
#pragma GCC poison __tanhf __fdividef __saturatef __frsqrt_rn fdividef
#pragma GCC poison fminf fmaxf fmin fmax
