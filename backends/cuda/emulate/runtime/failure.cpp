// How the emulator says that a kernel or its caller did something wrong: one line, then status 77.
#include <dlfcn.h>
#include <stdarg.h>
#include <unistd.h>

#include "runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulate {

std::string where() {
  if (!running) return "host";
  char text[256];
  snprintf(text, sizeof text, "kernel %s block (%u,%u,%u) thread (%u,%u,%u)", launch.name,
           block_place.x, block_place.y, block_place.z, running->thread.x, running->thread.y,
           running->thread.z);
  return text;
}

void leave(const std::string& message) {
  fprintf(stderr, "EMULATE: %s\n", message.c_str());
  fflush(stdout);
  fflush(stderr);
  // Not exit(): it would run destructors on a fiber's stack, under locks that are held.
  _exit(kMisuseStatus);
}

void fail(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  leave(where() + ": " + text);
}

std::string source_line(const void* program_counter) {
  Dl_info info;
  if (!program_counter || !dladdr(program_counter, &info)) return "?";
  auto offset = (uintptr_t)program_counter - 1 - (uintptr_t)info.dli_fbase;
  char command[512];
  snprintf(command, sizeof command, "addr2line -e '%s' 0x%lx 2>/dev/null", info.dli_fname,
           (unsigned long)offset);
  FILE* pipe = popen(command, "r");
  if (!pipe) return "?";
  char line[512] = "?";
  if (!fgets(line, sizeof line, pipe)) line[0] = 0;
  pclose(pipe);
  std::string text = line;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  size_t remark = text.find(" (discriminator");
  if (remark != std::string::npos) text.resize(remark);
  size_t slash = text.rfind('/');
  if (slash != std::string::npos) text = text.substr(slash + 1);
  if (text.empty() || text[0] == '?') return info.dli_sname ? info.dli_sname : "?";
  return text;
}

#if defined(__SANITIZE_ADDRESS__)
// The sanitizers have said what is wrong; this says where.
void end_like_others() {
  if (running) leave(where() + ": a sanitizer ended this, see above");
}

// Each sanitizer's library has its own; the one for undefined behaviour comes with the kernels.
void end_with_sanitizers() {
  __sanitizer_set_death_callback(end_like_others);
  void* library = dlopen("libubsan.so.1", RTLD_NOW | RTLD_NOLOAD);
  void* set = library ? dlsym(library, "__sanitizer_set_death_callback") : nullptr;
  if (set) reinterpret_cast<void (*)(void (*)())>(set)(end_like_others);
}
#else
void end_with_sanitizers() {}
#endif

}  // namespace emulate
