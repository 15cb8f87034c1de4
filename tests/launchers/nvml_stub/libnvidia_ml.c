/* A scripted libnvidia-ml.so.1: the entry points that pynvml calls, with values from the file $NVML_SCRIPT.
 *
 * The file is read by nvmlInit. One line each:
 *   driver 610.43                 cuda 13010
 *   gpu KEY=VALUE KEY=VALUE ...   one GPU, in NVML's order; see `key_names` for the keys
 * A value !N makes that call return error N; a key that is not there returns NOT_SUPPORTED (3). Keys:
 *   processes=PID:BYTES[,PID:BYTES]  lost_after=N   the GPU is lost (15) from the Nth reading of its power on
 *   xid=N  one event for each set                   mig=UUID[,UUID]  MIG is on, with these instances
 *   heats_to=N   every reading of the temperature makes it a degree hotter, up to this
 * energy_mj grows with power_mw and the clock unless energy_still=1; pcie_tx and pcie_rx by a million bytes a reading.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, ALREADY, NOT_FOUND, INSUFFICIENT_SIZE };
enum { DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15 };
enum { MAX_GPUS = 16, MAX_PROCESSES = 64, MAX_MIG = 8, TEXT = 96 };

static const char *key_names[] = {
    "utilisation", "memory_used", "memory_total", "power_mw", "power_limit_mw", "default_power_limit_mw",
    "sm_mhz", "memory_mhz", "max_sm_mhz", "max_memory_mhz", "temperature", "reasons", "energy_mj", "ecc",
    "ecc_mode", "persistence", "pcie_tx", "pcie_rx", "pcie_throughput_kb", "lost_after", "xid", "energy_still",
    "heats_to", NULL};
enum {
    UTILISATION, MEMORY_USED, MEMORY_TOTAL, POWER, POWER_LIMIT, DEFAULT_POWER_LIMIT, SM, MEMORY, MAX_SM, MAX_MEMORY,
    TEMPERATURE, REASONS, ENERGY, ECC, ECC_MODE, PERSISTENCE, PCIE_TX, PCIE_RX, PCIE_THROUGHPUT, LOST_AFTER, XID,
    ENERGY_STILL, HEATS_TO, KEYS
};

typedef struct { unsigned pid; unsigned long long bytes; } Process;
typedef struct Gpu {
    char uuid[TEXT], name[TEXT], bus[TEXT];
    int given[KEYS], error[KEYS];
    unsigned long long value[KEYS];
    Process processes[MAX_PROCESSES];
    int process_count, process_error, power_readings;
    struct Gpu *mig[MAX_MIG];
    int mig_count;
} Gpu;

static Gpu gpus[MAX_GPUS];
static int gpu_count, ready, cuda_version;
static char driver_version[TEXT];
static struct timespec began;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - began.tv_sec) + (now.tv_nsec - began.tv_nsec) / 1e9;
}

static void copy(char *to, const char *from) { snprintf(to, TEXT, "%s", from); }

static void read_processes(Gpu *gpu, char *text) {
    if (*text == '!') { gpu->process_error = atoi(text + 1); return; }
    char *rest;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        char *colon = strchr(one, ':');
        Process *process = &gpu->processes[gpu->process_count++];
        process->pid = (unsigned)strtoul(one, NULL, 10);
        process->bytes = colon && colon[1] != '?' ? strtoull(colon + 1, NULL, 10) : ~0ULL;
    }
}

static void read_mig(Gpu *gpu, char *text) {
    char *rest;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        Gpu *instance = calloc(1, sizeof(Gpu));
        copy(instance->uuid, one);
        gpu->mig[gpu->mig_count++] = instance;
    }
}

static void read_value(Gpu *gpu, const char *key, char *text) {
    if (!strcmp(key, "uuid")) copy(gpu->uuid, text);
    else if (!strcmp(key, "name")) { copy(gpu->name, text); for (char *c = gpu->name; *c; c++) if (*c == '_') *c = ' '; }
    else if (!strcmp(key, "bus")) copy(gpu->bus, text);
    else if (!strcmp(key, "processes")) read_processes(gpu, text);
    else if (!strcmp(key, "mig")) read_mig(gpu, text);
    else for (int k = 0; key_names[k]; k++) if (!strcmp(key, key_names[k])) {
        gpu->given[k] = 1;
        if (*text == '!') gpu->error[k] = atoi(text + 1);
        else gpu->value[k] = strtoull(text, NULL, 0);
    }
}

static int read_script(void) {
    const char *path = getenv("NVML_SCRIPT");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return DRIVER_NOT_LOADED;
    char line[4096], *rest, *equals;
    memset(gpus, 0, sizeof gpus);
    gpu_count = 0;
    while (fgets(line, sizeof line, file)) {
        char *word = strtok_r(line, " \n", &rest);
        if (!word) continue;
        if (!strcmp(word, "driver")) copy(driver_version, strtok_r(NULL, " \n", &rest));
        else if (!strcmp(word, "cuda")) cuda_version = atoi(strtok_r(NULL, " \n", &rest));
        else if (!strcmp(word, "gpu")) {
            Gpu *gpu = &gpus[gpu_count++];
            while ((word = strtok_r(NULL, " \n", &rest)))
                if ((equals = strchr(word, '='))) { *equals = 0; read_value(gpu, word, equals + 1); }
        }
    }
    fclose(file);
    clock_gettime(CLOCK_MONOTONIC, &began);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; int code = read_script(); ready = code == SUCCESS; return code; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { ready = 0; return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "scripted error"; }

static int text_out(char *to, unsigned length, const char *from) {
    if (!ready) return UNINITIALIZED;
    return snprintf(to, length, "%s", from) < (int)length ? SUCCESS : INSUFFICIENT_SIZE;
}
int nvmlSystemGetDriverVersion(char *to, unsigned length) { return text_out(to, length, driver_version); }
int nvmlSystemGetCudaDriverVersion_v2(int *to) { *to = cuda_version; return cuda_version ? SUCCESS : NOT_SUPPORTED; }
int nvmlDeviceGetCount_v2(unsigned *to) { *to = gpu_count; return ready ? SUCCESS : UNINITIALIZED; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **to) {
    if ((int)index >= gpu_count) return INVALID_ARGUMENT;
    *to = &gpus[index];
    return SUCCESS;
}
int nvmlDeviceGetName(Gpu *gpu, char *to, unsigned length) { return text_out(to, length, gpu->name); }
int nvmlDeviceGetUUID(Gpu *gpu, char *to, unsigned length) { return text_out(to, length, gpu->uuid); }

static int is_lost(const Gpu *gpu) {
    return gpu->given[LOST_AFTER] && gpu->power_readings >= (int)gpu->value[LOST_AFTER];
}
static int number(const Gpu *gpu, int key, unsigned long long *to) {
    if (is_lost(gpu)) return GPU_IS_LOST;
    if (!gpu->given[key]) return NOT_SUPPORTED;
    if (gpu->error[key]) return gpu->error[key];
    *to = gpu->value[key];
    return SUCCESS;
}
static int narrow(const Gpu *gpu, int key, unsigned *to) {
    unsigned long long value = 0;
    int code = number(gpu, key, &value);
    *to = (unsigned)value;
    return code;
}

typedef struct { char legacy[16]; unsigned domain, bus, device, pci, subsystem; char id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Gpu *gpu, Pci *to) {
    if (!gpu->bus[0]) return NOT_SUPPORTED;
    snprintf(to->id, sizeof to->id, "%.31s", gpu->bus);
    return SUCCESS;
}
typedef struct { unsigned gpu, memory; } Utilisation;
int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilisation *to) { to->memory = 0; return narrow(gpu, UTILISATION, &to->gpu); }
typedef struct { unsigned long long total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *to) {
    int code = number(gpu, MEMORY_USED, &to->used);
    return code ? code : number(gpu, MEMORY_TOTAL, &to->total);
}
int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *to) { gpu->power_readings++; return narrow(gpu, POWER, to); }
int nvmlDeviceGetEnforcedPowerLimit(Gpu *gpu, unsigned *to) { return narrow(gpu, POWER_LIMIT, to); }
int nvmlDeviceGetPowerManagementDefaultLimit(Gpu *gpu, unsigned *to) { return narrow(gpu, DEFAULT_POWER_LIMIT, to); }
int nvmlDeviceGetClockInfo(Gpu *gpu, unsigned kind, unsigned *to) { return narrow(gpu, kind == 2 ? MEMORY : SM, to); }
int nvmlDeviceGetMaxClockInfo(Gpu *gpu, unsigned kind, unsigned *to) { return narrow(gpu, kind == 2 ? MAX_MEMORY : MAX_SM, to); }
int nvmlDeviceGetTemperature(Gpu *gpu, unsigned sensor, unsigned *to) {
    (void)sensor;
    if (gpu->value[TEMPERATURE] < gpu->value[HEATS_TO]) gpu->value[TEMPERATURE]++;
    return narrow(gpu, TEMPERATURE, to);
}
#ifdef BEFORE_535
#define nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons
#endif
int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, unsigned long long *to) { return number(gpu, REASONS, to); }
int nvmlDeviceGetTotalEnergyConsumption(Gpu *gpu, unsigned long long *to) {
    int code = number(gpu, ENERGY, to);
    if (!code && !gpu->value[ENERGY_STILL]) *to += (unsigned long long)(gpu->value[POWER] * seconds());
    return code;
}
int nvmlDeviceGetTotalEccErrors(Gpu *gpu, unsigned kind, unsigned counter, unsigned long long *to) {
    return kind == 1 && counter == 0 ? number(gpu, ECC, to) : INVALID_ARGUMENT; /* uncorrected, volatile */
}
int nvmlDeviceGetEccMode(Gpu *gpu, unsigned *to, unsigned *pending) { *pending = 0; return narrow(gpu, ECC_MODE, to); }
int nvmlDeviceGetPersistenceMode(Gpu *gpu, unsigned *to) { return narrow(gpu, PERSISTENCE, to); }
int nvmlDeviceGetPcieThroughput(Gpu *gpu, unsigned counter, unsigned *to) { (void)counter; return narrow(gpu, PCIE_THROUGHPUT, to); }

typedef struct {
    unsigned field, scope; long long at, latency; unsigned type; int code; union { double d; unsigned long long n; } value;
} Field;
int nvmlDeviceGetFieldValues(Gpu *gpu, int count, Field *fields) {
    if (is_lost(gpu)) return GPU_IS_LOST;
    for (int i = 0; i < count; i++) {
        int key = fields[i].field == 197 ? PCIE_TX : fields[i].field == 198 ? PCIE_RX : KEYS;
        fields[i].type = 3;
        fields[i].code = key == KEYS ? NOT_SUPPORTED : number(gpu, key, &fields[i].value.n);
        if (key != KEYS && !fields[i].code) gpu->value[key] += 1000000;
    }
    return SUCCESS;
}

typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } ProcessOut;
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned *count, ProcessOut *to) {
    if (is_lost(gpu)) return GPU_IS_LOST;
    if (gpu->process_error) return gpu->process_error;
    unsigned room = *count;
    *count = gpu->process_count;
    if (room < *count) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++)
        to[i] = (ProcessOut){gpu->processes[i].pid, gpu->processes[i].bytes, ~0u, ~0u};
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *now, unsigned *pending) {
    *now = *pending = gpu->mig_count > 0;
    return gpu->given[UTILISATION] || gpu->mig_count ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned *to) { *to = gpu->mig_count ? MAX_MIG : 0; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned index, Gpu **to) {
    if ((int)index >= gpu->mig_count) return NOT_FOUND;
    *to = gpu->mig[index];
    return SUCCESS;
}

typedef struct { Gpu *gpu; unsigned long long type, data; unsigned instance, compute; } Event;
typedef struct { Gpu *gpu; int taken; } EventSet;
int nvmlEventSetCreate(EventSet **to) { *to = calloc(1, sizeof(EventSet)); return SUCCESS; }
int nvmlEventSetFree(EventSet *set) { free(set); return SUCCESS; }
int nvmlDeviceRegisterEvents(Gpu *gpu, unsigned long long types, EventSet *set) {
    if (types != 8) return INVALID_ARGUMENT;
    unsigned unused;
    int code = narrow(gpu, XID, &unused);
    if (code) return code;
    set->gpu = gpu;
    return SUCCESS;
}
int nvmlEventSetWait_v2(EventSet *set, Event *to, unsigned timeout_ms) {
    (void)timeout_ms;
    if (!set->gpu || !set->gpu->value[XID] || set->taken++) return TIMEOUT;
    *to = (Event){set->gpu, 8, set->gpu->value[XID], 0, 0};
    return SUCCESS;
}
