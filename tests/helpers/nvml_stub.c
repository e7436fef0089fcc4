/* Stands for NVIDIA's library where there is no GPU: two of them, with numbers that a test can tell apart. It is no proof
   that the real one answers so. The second GPU has no NVLink and does not tell its power. */
#include <stddef.h>

typedef struct { unsigned field, scope; long long timestamp, latency; int kind, status; union { double d; unsigned u; unsigned long long q; } value; } field_t;

static int gpus[2] = {0, 1};
static unsigned calls;

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &gpus[index]; return 0; }
int nvmlDeviceGetUtilizationRates(int *device, unsigned *use) { use[0] = 40 + *device; use[1] = 7; return 0; }
int nvmlDeviceGetMemoryInfo(int *device, unsigned long long *memory) {
    memory[0] = 80ull << 30; memory[1] = 79ull << 30; memory[2] = (1ull << 30) + *device; return 0;
}
int nvmlDeviceGetMemoryInfo_v2(int *device, unsigned char *memory) { /* told by the first GPU alone, as of a newer driver */
    unsigned long long *of = (unsigned long long *)(memory + 8);
    if (*device || *(unsigned *)memory != (40 | 2 << 24)) return 2;
    of[0] = 80ull << 30; of[1] = 1ull << 29; of[2] = 79ull << 30; of[3] = 1ull << 29; return 0;
}
int nvmlDeviceGetClockInfo(int *device, int kind, unsigned *mhz) { *mhz = kind == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetPowerUsage(int *device, unsigned *mw) { *mw = 350500; return *device ? 3 : 0; }
int nvmlDeviceGetTemperature(int *device, int sensor, unsigned *celsius) { *celsius = 55; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(int *device, unsigned long long *reasons) { *reasons = 4; return 0; }
int nvmlDeviceGetFieldValues(int *device, int count, field_t *fields) {
    ++calls;
    for (int i = 0; i < count; ++i) {
        int link = fields[i].field == 138 || fields[i].field == 139;
        fields[i].status = link && (*device || fields[i].scope != 0xffffffffu) ? 3 : 0;
        fields[i].kind = link ? 3 : 1;
        if (link) fields[i].value.q = 5000000000ull + calls;
        else fields[i].value.u = 0xfffffff0u + 10 * calls; /* rolls over after the second call */
    }
    return 0;
}
