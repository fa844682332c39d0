/*
 * Lower bound on the cost of an isolated call: what the C code of the zygote (the warm interpreter that forks a child
 * for each call) does for it, without Python. Exits 1 if a call fails.
 *
 * isolatedFloor SECONDS SMALL_KIB HUGE_KIB MAPPINGS PROC SELF FILTER UID_MAP
 *
 * in   sizes of an address space like a zygote's: SMALL_KIB of written memory in small pages, HUGE_KIB in huge ones,
 *      MAPPINGS mappings; file descriptors: PROC of /proc, SELF of this process, FILTER of a file with the seccomp
 *      filter; UID_MAP: the user mapping. isolatedFloor.py has entered the zygote's namespaces and root before
 * out  the number of calls, the seconds that they took, the seconds of CPU time
 * Each call takes the zygote's own steps, by the zygote's functions: memory files for code and output, clone with new
 * namespaces, user mappings, tmpfs, limits, capabilities, filter, an epoll of the pidfd, wait4, the reply.
 * The child exits where Python would begin. Two calls are in flight, as in the zygote.
 */
#include "../../../sandbox/zygote/shim/shim.c"

static double seconds_of(const struct timeval *t) { return t->tv_sec + t->tv_usec * 1e-6; }

static double cpu_seconds(int who) {
  struct rusage use;
  getrusage(who, &use);
  return seconds_of(&use.ru_utime) + seconds_of(&use.ru_stime);
}

static void write_pages(char *at, size_t size) {
  for (size_t n = 0; n < size; n += 4096) at[n] = 1;
}

static int mappings(int proc) {
  char text[65536];
  int fd = openat(proc, "self/maps", O_RDONLY), lines = 0;
  for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;)
    for (ssize_t i = 0; i < n; i++) lines += text[i] == '\n';
  close(fd);
  return lines;
}

/* Gives this process memory of the zygote's shape. */
static void fill(size_t small, size_t large, int wanted, int proc) {
  char *at = to_large_page(fresh_memory(large + LARGE_PAGE, 0));
  write_pages(at, large);
  if (large) madvise(at, large, 25); /* MADV_COLLAPSE */
  at = fresh_memory(small, 0);
  madvise(at, small, MADV_NOHUGEPAGE);
  write_pages(at, small);
  /* Neighbours with other rights are mappings of their own. Each has a page that the child's page table copies. */
  for (int n = mappings(proc); n < wanted; n++) {
    at = fresh_memory(8192, 0);
    *at = 1;
    mprotect(at, 8192, n % 2 ? PROT_READ : PROT_READ | PROT_WRITE);
  }
}

/* Returns 1, with a message, if a reply says that a call failed. */
static int check_replies(void) {
  for (size_t at = 0; at < out.used;) {
    struct reply r;
    memcpy(&r, out.at + at, sizeof r);
    if (r.kind == FAILED || (r.kind == DONE && (r.status || r.out_len != 2))) {
      fprintf(stderr, "a call failed: error %u, status %u\n", r.error, r.status);
      return 1;
    }
    at += r.bytes;
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 9) return 2;
  static struct config c = {.landlock = -1, .uid = -1, .layers = NAMESPACES | SECCOMP | LIMITS, .runnable = 2, .longest = 3,
                            .file_bytes = 1ull << 40, .open_files = 64, .tmp_mb = 16, .threads = 64, .scratch = "/tmp"};
  static struct sock_filter filter[4096];
  double limit = atof(argv[1]);
  c.proc = atoi(argv[5]);
  c.self = atoi(argv[6]);
  c.filter = filter;
  c.filter_length = pread(atoi(argv[7]), filter, sizeof filter, 0) / sizeof *filter;
  strcpy(c.uid_map, argv[8]);
  strcpy(c.gid_map, argv[8]);
  c.in = c.out = open("/dev/null", O_RDWR);
  c.base_bytes = 1ull << 30;
  config = &c;
  fill(strtoul(argv[2], 0, 10) << 10, strtoul(argv[3], 0, 10) << 10, atoi(argv[4]), c.proc);
  stages = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  epoll = epoll_create1(EPOLL_CLOEXEC);
  long begun = 0, ended = 0;
  uint64_t start = now(), end = start + limit * 1e9;
  while (now() < end || ended < begun) {
    while (begun - ended < c.runnable && now() < end) {
      struct call call = {.request = {.timeout_ms = 4000, .memory_mb = 512, .max_output = 65536}, .input = -1};
      call.code = sealed_file("code", "print(1)", 8);
      if (start_call(&call)) {
        if (write(1, "1\n", 2) != 2) _exit(1);
        _exit(0);
      }
      begun++;
    }
    if (check_replies()) return 1; /* start_call replies at once if it could not start the call */
    struct epoll_event events[8];
    int n = epoll_wait(epoll, events, 8, -1);
    for (int i = 0; i < n; i++) {
      struct call *lane = &lanes[events[i].data.u64];
      child_ended(events[i].data.u64);
      ended += !lane->busy;
    }
    if (check_replies()) return 1;
    flush();
  }
  printf("%ld %f %f\n", ended, (now() - start) * 1e-9, cpu_seconds(RUSAGE_SELF) + cpu_seconds(RUSAGE_CHILDREN));
  return 0;
}
