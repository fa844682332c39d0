/*
 * The kernel's view of a session's processes. Part of shim.c.
 *
 * in   the pid of the session's first process      out  its children: their pids, states, memory, open descriptors
 * Invariant: everything is read from the zygote's /proc, which no cell can reach; nothing here is a claim (what a
 * cell reports about itself).
 */

/* CHANNEL: descriptor on which a stopped cell receives the next request; see filter.py. */
enum { CELLS = 128, CHANNEL = 4 };

/* Process of a session. inner: its pid in its namespace. state: as in /proc. */
struct cell { int pid, inner; char state; uint32_t anonymous_kib; };
struct memory { uint32_t own_kib; int shared; };

static uint32_t zygote_kib; /* Anonymous memory of the zygote, which every first cell of a session starts with. */

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

/* Lists the children of `init`. `inner` is 0 for a process that has just ended. */
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
    if ((line = strstr(status, "State:\t"))) c->state = line[7];
    c->anonymous_kib = number_after(status, "RssAnon:");
  }
  return n;
}

/*
 * Memory of a process. own_kib: memory that no other process shares. shared: 1 if it has mapped shared memory, to which
 * its forks would write too.
 */
static struct memory memory_of(int pid) {
  char path[32], text[4096];
  snprintf(path, sizeof path, "%d/smaps_rollup", pid);
  if (read_proc(path, text, sizeof text)) return (struct memory){0};
  uint32_t own = number_after(text, "Private_Dirty:") + number_after(text, "Private_Clean:");
  return (struct memory){own, number_after(text, "Pss_Shmem:") > 0};
}

/*
 * Returns 1 if a process has descriptors besides its streams and CHANNEL: two forks of it would share a file position.
 */
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
