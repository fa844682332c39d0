/*
 * Admission: decides when the next waiting call may begin, and which running calls go last. Part of shim.c.
 *
 * in   CPU time and state of each running child, sampled every 4 ms while calls wait, else every 20 ms
 * out  whether a slot is free; how long epoll may wait; priorities
 * Invariant: a call begins only if fewer than LANES (60) calls of this zygote run, and of those that do not sleep fewer
 * than most_long() are long (had more than 20 ms of CPU time) and fewer than config.runnable are fresh (the others).
 * For an urgent call both numbers are EXTRA higher: the long calls of one client do not keep another client's from
 * beginning.
 *
 * Two loads have long calls. Where most calls compute for long, few of them run at once, so that each ends within its
 * limit. Where one call in twenty is long, it most likely spins: many long calls may run at once, but only while short
 * calls do not want the core, so that spinning calls take neither slots nor CPU time from short ones.
 */

enum { EXTRA = 2, SAMPLE_NS = 4000000, LONG_NS = 20000000, LONG_NICE = 5 };
enum { CROWD = 40, RECENT = 64, WHOLE = 1 << 16, IDLE_AGAIN_NS = 100000000 };

/*
 * Share of the calls that become long, times WHOLE: a moving average in which the latest call has the weight 1/RECENT.
 */
static uint32_t long_share = WHOLE / 8;

/*
 * Upper bound on the long calls that run at once: CROWD while one call in twenty is long, a quarter of that while one
 * in ten is, and config.longest from one in six on.
 */
static int most_long(void) {
  uint64_t share = long_share + 1, most = (uint64_t)WHOLE * WHOLE / 10 / (share * share);
  return most < (uint64_t)config->longest ? config->longest : most > CROWD ? CROWD : most;
}

/* Returns a process's state as the kernel names it: R runs, S sleeps, T is stopped; 0 if the process has ended. */
static char process_state(int pid) {
  char path[32], text[256];
  snprintf(path, sizeof path, "%d/stat", pid);
  int fd = openat(config->proc, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  text[n > 0 ? n : 0] = 0;
  char *end = strrchr(text, ')');
  return end && end[1] ? end[2] : 0;
}

/* Gives the threads of a process the policy SCHED_IDLE; threads that they start inherit it. */
static void make_idle(int pid) {
  struct { int priority; } none = {0};
  char path[32], space[2048];
  snprintf(path, sizeof path, "%d/task", pid);
  int fd = openat(config->proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  long n = fd < 0 ? 0 : syscall(SYS_getdents64, fd, space, sizeof space);
  for (long at = 0; at < n; at += *(unsigned short *)(space + at + 16))
    if (space[at + 19] != '.') syscall(SYS_sched_setscheduler, atoi(space + at + 19), SCHED_IDLE, &none);
  if (fd >= 0) close(fd);
}

/*
 * Once more than config.longest calls are long, puts a long call, which already has the nice value LONG_NICE, behind
 * the others by the policy SCHED_IDLE: it then runs almost only while nothing else of this zygote wants the core.
 * Neither is undone, since that needs a privilege. Later cells of a session inherit both, so a cell becomes idle only
 * in the second half of its time limit.
 */
static void go_last(struct call *c, int crowd, uint64_t at) {
  if (crowd <= config->longest || (c->session >= 0 && at - c->began < c->request.timeout_ms * 500000ull)) return;
  if (c->idled && at - c->idled < IDLE_AGAIN_NS) return;
  c->idled = at;
  make_idle(c->pid);
}

/* Samples CPU time and state of every running call. A sleeping call makes room for another. */
static void sample(uint64_t at) {
  int crowd = 0;
  for (int i = 0; i < LANES; i++) crowd += lanes[i].busy && lanes[i].is_long && !lanes[i].asleep;
  for (int i = 0; i < LANES; i++) {
    struct call *c = &lanes[i];
    if (!c->busy || at - c->sampled < SAMPLE_NS) continue;
    if (c->session >= 0 && c->pid == 0) c->pid = running_cell(c->session);
    if (c->pid <= 0) continue;
    struct timespec t;
    if (clock_gettime((~(clockid_t)c->pid) << 3 | 2, &t)) continue;
    uint64_t cpu = t.tv_sec * 1000000000ull + t.tv_nsec;
    char state = cpu - c->cpu < (at - c->sampled) / 20 ? process_state(c->pid) : 'R';
    c->asleep = state == 'S' || state == 0;
    if (!c->is_long && cpu > LONG_NS) {
      c->is_long = 1;
      long_share += WHOLE / RECENT;
      crowd++;
      setpriority(c->session < 0 ? PRIO_PGRP : PRIO_PROCESS, c->pid, LONG_NICE);
    }
    if (c->is_long) go_last(c, crowd, at);
    c->cpu = cpu;
    c->sampled = at;
  }
}

/* Returns 1 if one more call may begin. */
static int has_room(int urgent) {
  int all = 0, fresh = 0, longer = 0;
  for (int i = 0; i < LANES; i++) {
    if (!lanes[i].busy) continue;
    all++;
    if (lanes[i].asleep) continue;
    if (lanes[i].is_long) longer++;
    else fresh++;
  }
  int extra = urgent ? EXTRA : 0;
  return all < LANES && fresh < config->runnable + extra && longer < most_long() + extra;
}

/* Returns the place of the next call in `pending`: the first urgent one, else the first. */
static int next_pending(void) {
  for (int i = 0; i < pending_count; i++)
    if (pending[(pending_first + i) % PENDING].request.flags & URGENT) return i;
  return 0;
}

/* Removes the call at this place from `pending`. */
static void take_pending(int place) {
  for (int i = place; i > 0; i--) pending[(pending_first + i) % PENDING] = pending[(pending_first + i - 1) % PENDING];
  pending_first = (pending_first + 1) % PENDING;
  pending_count--;
}

/* Returns the longest wait for events in ms: until the next deadline, sample or trim; -1 means no limit. */
static int wait_ms(uint64_t at) {
  uint64_t until = UINT64_MAX;
  int busy = 0;
  for (int i = 0; i < LANES; i++)
    if (lanes[i].busy) {
      busy++;
      if (lanes[i].is_loud && at + TRIM_NS < until) until = at + TRIM_NS;
      if (lanes[i].deadline < until) until = lanes[i].deadline;
    }
  if (busy && pending_count && at + SAMPLE_NS < until) until = at + SAMPLE_NS;
  else if (busy && at + 5ull * SAMPLE_NS < until) until = at + 5ull * SAMPLE_NS;
  if (until == UINT64_MAX) return -1;
  return until <= at ? 0 : (until - at + 999999) / 1000000;
}

