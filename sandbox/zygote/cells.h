/*
 * What the kernel says of a session's processes. Part of shim.c.
 *
 * in   the session's first process      out  its children: which they are, whether they are stopped, what they hold
 * Invariant: it is read where this process sees it, which no cell does; nothing here is a cell's word.
 */

enum { CELLS = 128, CHANNEL = 4 }; /* CHANNEL: the descriptor on which a stopped cell finds the next one; see filter.py */

struct cell { int pid, inner; char doing; uint32_t anonymous_kib; }; /* inner: its number as it sees itself */
struct memory { uint32_t own_kib; int shared; };

static uint32_t zygote_kib; /* of memory that every cell begins with */

static long number_after(const char *text, const char *name) {
  const char *at = strstr(text, name);
  return at ? strtol(at + strlen(name), 0, 10) : 0;
}

static int read_proc(const char *path, char *text, size_t size) {
  int fd = openat(config->proc, path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
  if (fd >= 0) close(fd);
  text[n > 0 ? n : 0] = 0;
  return n > 0 ? 0 : -1;
}

static uint32_t anonymous_kib(const char *process) {
  char path[32], text[2048];
  snprintf(path, sizeof path, "%s/status", process);
  return read_proc(path, text, sizeof text) ? 0 : number_after(text, "RssAnon:");
}

/* `inner` is 0 where it has just gone. */
static int cells_of(int init, struct cell *cells) {
  char path[64], text[4096], status[2048];
  int n = 0;
  snprintf(path, sizeof path, "%d/task/%d/children", init, init);
  if (read_proc(path, text, sizeof text)) return 0;
  for (char *at = text, *end; n < CELLS; at = end, n++) {
    struct cell *c = &cells[n];
    *c = (struct cell){.pid = strtol(at, &end, 10)};
    if (c->pid <= 0) break;
    snprintf(path, sizeof path, "%d/status", c->pid);
    char *line, *stop;
    if (read_proc(path, status, sizeof status) || !(line = strstr(status, "NSpid:")) || !(stop = strchr(line, '\n'))) continue;
    *stop = 0;
    c->inner = atoi(strrchr(line, '\t') + 1);
    *stop = '\n';
    if ((line = strstr(status, "State:\t"))) c->doing = line[7];
    c->anonymous_kib = number_after(status, "RssAnon:");
  }
  return n;
}

/* `own_kib`: what only this cell has. `shared`: mapped memory that a fork of it would write to as well. */
static struct memory memory_of(int pid) {
  char path[32], text[4096];
  snprintf(path, sizeof path, "%d/smaps_rollup", pid);
  if (read_proc(path, text, sizeof text)) return (struct memory){0};
  uint32_t own = number_after(text, "Private_Dirty:") + number_after(text, "Private_Clean:");
  return (struct memory){own, number_after(text, "Pss_Shmem:") > 0};
}

/* Whether it has descriptors beside its streams and its channel: two forks of it would read on in one file. */
static int has_descriptors(int pid) {
  char path[32], space[1024];
  snprintf(path, sizeof path, "%d/fd", pid);
  int fd = openat(config->proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), found = 0;
  long n = fd < 0 ? 0 : syscall(SYS_getdents64, fd, space, sizeof space);
  for (long at = 0; at < n; at += *(unsigned short *)(space + at + 16)) {
    const char *name = space + at + 19;
    found |= *name != '.' && atoi(name) > 2 && atoi(name) != CHANNEL;
  }
  if (fd >= 0) close(fd);
  return found;
}
