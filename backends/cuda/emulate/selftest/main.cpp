// Runs one case of the selftest: main CASE [WORDS]. ../selftest.sh knows all of them and what each
// must end with.
#include "host.h"

namespace {

CUmodule module_of_everything;

}  // namespace

CUfunction kernel(const char* name) {
  CUfunction function;
  OK(cuModuleGetFunction(&function, module_of_everything, name));
  return function;
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  OK(cuInit(0));
  CUcontext context;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  // Any image: selftest.sh sets EMULATE_ANY_SOURCE, but for the case that is about images.
  if (getenv("EMULATE_ANY_SOURCE")) OK(cuModuleLoadData(&module_of_everything, "\x7f" "ELF"));
  Words words(argv + 2, argv + argc);
  for (auto* cases : {&kernel_cases, &stream_cases, &graph_cases, &driver_cases}) {
    for (const Named& one : *cases) {
      if (strcmp(one.name, argv[1])) continue;
      one.run(words);
      return 0;
    }
  }
  printf("there is no case %s\n", argv[1]);
  return 2;
}
