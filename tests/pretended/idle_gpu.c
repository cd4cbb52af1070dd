/* What torch asks of the CUDA runtime and driver beside launching kernels, answered as by one idle device.

   Preloaded, it stands before libcudart; under the name libcuda.so.1 it is the driver that torch loads. Arguments that
   nothing is written to are left undeclared, which the calling conventions of x86-64 and AArch64 allow. */

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define MEMORY ((size_t)8 << 30)
#define DONE return 0
#define IDLE(name) int name() { DONE; }

static int number(int *to, int value) { *to = value; DONE; }
static int handle(void **to) { static size_t last; *to = (void *)(last += 16); DONE; }

int cuInit() { DONE; }
int cuDeviceGetCount(int *count) { return number(count, 1); }
int cuDeviceGet(int *device) { return number(device, 0); }
int cuDeviceTotalMem_v2(size_t *bytes) { *bytes = MEMORY; DONE; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; return number(active, 1); }

int cudaGetDeviceCount(int *count) { return number(count, 1); }
int cudaGetDevice(int *device) { return number(device, 0); }
int cudaDriverGetVersion(int *version) { return number(version, 99000); }
int cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version, unsigned long long flags,
                                     int *found) {
    *function = NULL;
    return number(found, 1);
}
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; return number(greatest, -5); }
int cudaStreamCreateWithPriority(void **stream) { return handle(stream); }
int cudaEventCreateWithFlags(void **event) { return handle(event); }
int cudaEventElapsedTime(float *milliseconds) { *milliseconds = 1; DONE; }
int cudaStreamIsCapturing(void *stream, int *status) { return number(status, 0); }
int cudaStreamGetCaptureInfo(void *stream, int *status) { return number(status, 0); }
int cudaMemGetInfo(size_t *unused, size_t *total) { *unused = *total = MEMORY; DONE; }

IDLE(cudaSetDevice)
IDLE(cudaDeviceCanAccessPeer)
IDLE(cudaDeviceSynchronize)
IDLE(cudaEventDestroy)
IDLE(cudaEventQuery)
IDLE(cudaEventRecord)
IDLE(cudaEventRecordWithFlags)
IDLE(cudaEventSynchronize)
IDLE(cudaGetDeviceProperties)
IDLE(cudaGetLastError)
IDLE(cudaPeekAtLastError)
IDLE(cudaStreamQuery)
IDLE(cudaStreamSynchronize)
IDLE(cudaStreamWaitEvent)
IDLE(cudaThreadExchangeStreamCaptureMode)

/* There are no tensors that these could serve. */
static int refuse(const char *name) { fprintf(stderr, "the pretended device cannot do %s\n", name); abort(); }
int cudaMalloc() { return refuse("cudaMalloc"); }
int cudaMemcpyAsync() { return refuse("cudaMemcpyAsync"); }
int cudaLaunchKernel() { return refuse("cudaLaunchKernel"); }
