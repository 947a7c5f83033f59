// The stand-in for NVRTC: it compiles nothing. Its image says which source it was given, by a hash,
// and the stand-in driver then takes the kernels that build.sh made from that very source. It
// refuses the options under which a real compiler would change the results of floats.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <string>

#include "../driver/modules.h"

namespace {

enum nvrtcResult : int {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
  NVRTC_ERROR_INVALID_INPUT = 3,
  NVRTC_ERROR_INVALID_PROGRAM = 4,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6,
};

struct Program {
  std::string source, log;
  bool compiled;
};

// FNV-1a over the program text; inline.py computes the same.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3ull;
  return hash;
}

// `head` makes it pass for an image of its kind.
std::string image_of(const Program& program, const char* head) {
  char digits[32];
  snprintf(digits, sizeof digits, "%016llx\n", (unsigned long long)hash_of(program.source));
  return std::string(head) + EMULATE_IMAGE_MARK + digits;
}
std::string cubin_of(const Program& program) { return image_of(program, "\x7f" "ELF"); }
std::string ptx_of(const Program& program) {
  return image_of(program, ".version 9.0\n// ") + std::string(1, '\0');
}

bool has_word(const std::string& text, const char* word) {
  return text.find(word) != std::string::npos;
}

}  // namespace

extern "C" {

typedef Program* nvrtcProgram;

nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}

const char* nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
    case NVRTC_SUCCESS:
      return "NVRTC_SUCCESS";
    case NVRTC_ERROR_INVALID_INPUT:
      return "NVRTC_ERROR_INVALID_INPUT";
    case NVRTC_ERROR_INVALID_PROGRAM:
      return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_ERROR_INVALID_OPTION:
      return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION:
      return "NVRTC_ERROR_COMPILATION";
    default:
      return "NVRTC_ERROR unknown";
  }
}

nvrtcResult nvrtcGetNumSupportedArchs(int* len) {
  *len = 5;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  const int known[] = {80, 89, 90, 100, 120};
  memcpy(archs, known, sizeof known);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int headers,
                               const char* const*, const char* const*) {
  if (!source) return NVRTC_ERROR_INVALID_INPUT;
  // The hash is over one text; headers on the side would not be in it.
  if (headers) return NVRTC_ERROR_PROGRAM_CREATION_FAILURE;
  *program = new Program{source, "", false};
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  if (!program || !*program) return NVRTC_ERROR_INVALID_PROGRAM;
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int len, const char* const* options) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  bool contracts = true;
  for (int i = 0; i < len; i++) {
    std::string option = options[i];
    if (has_word(option, "fmad=false")) contracts = false;
    if (has_word(option, "use_fast_math") || has_word(option, "ftz=true") ||
        has_word(option, "prec-div=false") || has_word(option, "prec-sqrt=false"))
      program->log += "EMULATE: the option " + option + " changes the results of floats\n";
  }
  if (contracts)
    program->log += "EMULATE: --fmad=false is missing: a product and a sum would be fused\n";
  if (has_word(program->source, "#include"))
    program->log += "EMULATE: the program has an #include, but headers are inlined by the caller\n";
  program->compiled = program->log.empty();
  return program->compiled ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* bytes) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  *bytes = program->log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(log, program->log.c_str(), program->log.size() + 1);
  return NVRTC_SUCCESS;
}

#define EMULATE_IMAGE(name, make)                                             \
  nvrtcResult nvrtcGet##name##Size(nvrtcProgram program, size_t* bytes) {     \
    if (!program || !program->compiled) return NVRTC_ERROR_INVALID_PROGRAM;   \
    *bytes = make(*program).size();                                           \
    return NVRTC_SUCCESS;                                                     \
  }                                                                           \
  nvrtcResult nvrtcGet##name(nvrtcProgram program, char* image) {             \
    if (!program || !program->compiled) return NVRTC_ERROR_INVALID_PROGRAM;   \
    std::string made = make(*program);                                        \
    memcpy(image, made.data(), made.size());                                  \
    return NVRTC_SUCCESS;                                                     \
  }
EMULATE_IMAGE(CUBIN, cubin_of)
EMULATE_IMAGE(PTX, ptx_of)

}  // extern "C"
