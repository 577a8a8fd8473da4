/* A libnvidia-ml.so.1 for tests: the functions that relume calls, with the structures of nvml.h, answered of a file that
   FAKE_NVML names and that is read at each call. Its lines, with bars between the fields:
     card|UUID|NAME|TOTAL|RESERVED|USED|BUSY|REMAP_FAILED|LOST|SPLIT     bytes, per cent, and 0 or 1
     mig|CARD|UUID|NAME|TOTAL|USED                                       CARD counts from 0
     proc|CARD|PID
     xid|CARD|NUMBER                                                     told once, in their order
     nodriver                                                            there is no driver */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, NO_DRIVER = 9, TIMEOUT = 10, LOST = 15, UNKNOWN = 999 };
#define MIGS 1000 /* handles of instances begin here */

typedef struct { char *field[12]; char text[1024]; } Line;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned gpu, memory; } Load;
typedef struct { unsigned pid; unsigned long long used; unsigned gpuInstance, computeInstance; } Process;
typedef struct { void *device; unsigned long long type, data; unsigned gpuInstance, computeInstance; } Event;

/* The number'th line of a kind, from 0; 0: there is none. */
static int line_of(const char *kind, int number, Line *line) {
  const char *path = getenv("FAKE_NVML");
  FILE *file = path ? fopen(path, "r") : NULL;
  int found = 0;
  while (file && !found && fgets(line->text, sizeof line->text, file)) {
    line->text[strcspn(line->text, "\n")] = 0;
    memset(line->field, 0, sizeof line->field);
    char *rest = line->text;
    for (int at = 0; at < 12 && rest; at++) line->field[at] = strsep(&rest, "|");
    if (!strcmp(line->field[0], kind) && number-- == 0) found = 1;
  }
  if (file) fclose(file);
  return found;
}

static unsigned long long number(Line *line, int field) { return strtoull(line->field[field], NULL, 10); }
static int index_of(void *device) { return (int)(long)device - 1; }

static int card_of(void *device, Line *line) {
  int index = index_of(device);
  if (index >= MIGS) return line_of("mig", index - MIGS, line) ? SUCCESS : NOT_FOUND;
  if (!line_of("card", index, line)) return NOT_FOUND;
  return number(line, 8) ? LOST : SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) { Line line; (void)flags; return line_of("nodriver", 0, &line) ? NO_DRIVER : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "error"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  Line line;
  for (*count = 0; line_of("card", (int)*count, &line); (*count)++) {}
  return line_of("nodriver", 0, &line) ? UNKNOWN : SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(long)(index + 1); return SUCCESS; }

int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
  Line line;
  int code = card_of(device, &line);
  if (!code) snprintf(text, length, "%s", line.field[index_of(device) >= MIGS ? 2 : 1]);
  return code;
}

int nvmlDeviceGetName(void *device, char *text, unsigned length) {
  Line line;
  int code = card_of(device, &line);
  if (!code) snprintf(text, length, "%s", line.field[index_of(device) >= MIGS ? 3 : 2]);
  return code;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, Memory2 *memory) {
  Line line;
  int code = card_of(device, &line), mig = index_of(device) >= MIGS;
  if (code) return code;
  if (memory->version != ((2u << 24) | sizeof *memory)) return UNKNOWN;
  if (!strcmp(line.field[mig ? 4 : 3], "-")) return NOT_SUPPORTED; /* its memory is the machine's */
  memory->total = number(&line, mig ? 4 : 3);
  memory->reserved = mig ? 0 : number(&line, 4);
  memory->used = number(&line, 5);
  memory->free = memory->total - memory->reserved - memory->used;
  return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, Load *load) {
  Line line;
  int code = card_of(device, &line);
  if (!code) { load->gpu = (unsigned)number(&line, 6); load->memory = 0; }
  return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *found) {
  Line line;
  unsigned room = *count, here = 0;
  int code = card_of(device, &line);
  if (code) return code;
  for (int at = 0; line_of("proc", at, &line); at++)
    if ((int)number(&line, 1) == index_of(device)) {
      if (here < room && found) { memset(&found[here], 0, sizeof *found); found[here].pid = (unsigned)number(&line, 2); }
      here++;
    }
  *count = here;
  return here > room ? SMALL : SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, Process *found) {
  (void)device; (void)found; *count = 0;
  return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) {
  Line line;
  int code = card_of(device, &line);
  if (!code) *now = *later = (unsigned)number(&line, 9);
  return code;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { (void)device; *count = 7; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned wanted, void **found) {
  Line line;
  for (int at = 0; line_of("mig", at, &line); at++)
    if ((int)number(&line, 1) == index_of(device) && wanted-- == 0) {
      *found = (void *)(long)(MIGS + at + 1);
      return SUCCESS;
    }
  return NOT_FOUND;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *mended, unsigned *not, unsigned *pending, unsigned *failed) {
  Line line;
  int code = card_of(device, &line);
  if (!code) { *mended = *not = *pending = 0; *failed = (unsigned)number(&line, 7); }
  return code;
}

int nvmlEventSetCreate(void **set) { *set = (void *)1; return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long kinds, void *set) {
  (void)device; (void)set;
  return kinds == 8 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(void *set, Event *event, unsigned milliseconds) {
  static int told = 0;
  Line line;
  (void)set;
  for (unsigned waited = 0; waited <= milliseconds; waited += 20) {
    if (line_of("xid", told, &line)) {
      told++;
      memset(event, 0, sizeof *event);
      event->device = (void *)(long)(number(&line, 1) + 1);
      event->type = 8;
      event->data = number(&line, 2);
      return SUCCESS;
    }
    usleep(20000);
  }
  return TIMEOUT;
}
