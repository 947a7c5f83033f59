// Names and texts of the errors that the stand-in gives, as the driver has them.
#include "cuda_api.h"

namespace {

struct Description {
  CUresult code;
  const char *name, *text;
};
#define NAMED(code, text) {code, #code, text}
const Description descriptions[] = {
    NAMED(CUDA_SUCCESS, "no error"),
    NAMED(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    NAMED(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    NAMED(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    NAMED(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    NAMED(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    NAMED(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    NAMED(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    NAMED(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    NAMED(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    NAMED(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    NAMED(CUDA_ERROR_NOT_READY, "device not ready"),
    NAMED(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    NAMED(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    NAMED(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    NAMED(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          "operation not permitted when stream is capturing"),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
          "operation failed due to a previous error during capture"),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_MERGE,
          "operation would result in a merge of separate capture sequences"),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
          "capture was not ended in the same stream as it began"),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
          "capturing stream has unjoined work"),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
          "dependency created on uncaptured work in another stream"),
    NAMED(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    NAMED(CUDA_ERROR_CAPTURED_EVENT,
          "operation not permitted on an event last recorded in a capturing stream"),
    NAMED(CUDA_ERROR_UNKNOWN, "unknown error"),
};

const Description* find(CUresult code) {
  for (const Description& description : descriptions)
    if (description.code == code) return &description;
  return nullptr;
}

}  // namespace

extern "C" {

CUresult cuGetErrorName(CUresult code, const char** name) {
  const Description* found = find(code);
  *name = found ? found->name : nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char** text) {
  const Description* found = find(code);
  *text = found ? found->text : nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
