// Names that the kernels of the selftest share.
#pragma once
constexpr unsigned kFullMask = 0xffffffffu;
