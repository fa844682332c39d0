/*
 * Sessions: a namespace whose cells stay. Part of shim.c.
 *
 * in   cells 0, 1, … of a session, each with the state it forks from      out  its reply, and a state: a stopped process
 * Invariant: the namespace's first process runs this file alone; it reaps the cells and tells the zygote what wait4 said,
 * over a socket that no cell has. A call is over when the kernel reports its cell stopped or dead, and answered when
 * nothing but stopped states is left in the namespace. What a cell says itself (its number, its exit code) decides
 * nothing but its own result. Where it does what it should not, its whole session is ended; the pool rebuilds it from
 * the recorded cells.
 */

enum { GRACE_NS = 1000000000 }; /* for what a cell leaves to be dead */

static int send_with(int socket, const struct request *ask, const int *fds) {
  char space[CMSG_SPACE(4 * sizeof(int))];
  struct iovec part = {(void *)ask, sizeof *ask};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(4 * sizeof(int));
  memcpy(CMSG_DATA(head), fds, 4 * sizeof(int));
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static void say_word(int word) { send(CHANNEL, &word, sizeof word, MSG_DONTWAIT | MSG_NOSIGNAL); }

static sigset_t mask_of_cell;
static int hushed;

/* Of a cell that is over: no signal and no timer of it reaches the stopped process, whose death they could be. */
void zygote_hush(void) {
  sigset_t all;
  sigfillset(&all);
  if (!hushed) sigprocmask(SIG_BLOCK, &all, &mask_of_cell);
  hushed = 1;
  for (int timer = ITIMER_REAL; timer <= ITIMER_PROF; timer++) setitimer(timer, &(struct itimerval){0}, 0);
}

/* Called by a cell that is over: stops; in the fork that the next cell runs in, returns the descriptor of its code. */
int zygote_pause(int code, struct request *told) {
  say_word(code);
  pid_t next;
  do {
    kill(getpid(), SIGSTOP);
    next = fork_raw(CLONE_PARENT, 0);
  } while (next > 0);
  if (next < 0) _exit(1);
  say_word(getpid());
  for (int i = 0; i < 3; i++) close(i); /* what is received takes the lowest numbers: the streams lie there again */
  char space[CMSG_SPACE(4 * sizeof(int))];
  struct iovec part = {told, sizeof *told};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  if (recvmsg(CHANNEL, &message, 0) != sizeof *told || !CMSG_FIRSTHDR(&message)) _exit(1);
  if (CMSG_FIRSTHDR(&message)->cmsg_len != CMSG_LEN(4 * sizeof(int))) {
    dprintf(2, "the cells before have left no descriptor free\n");
    _exit(1);
  }
  int fds[4];
  memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
  hushed = 0;
  sigprocmask(SIG_SETMASK, &mask_of_cell, 0);
  return fds[3];
}

/* The namespace's first process. It ends with the zygote, and everything in the namespace with it. */
static void run_init(int events) {
  dup2(events, 3);
  syscall(SYS_close_range, 4u, ~0u, 0);
  for (;;) {
    struct rusage usage;
    int status;
    struct event e = {.pid = wait4(-1, &status, WUNTRACED | __WALL, &usage)};
    if (e.pid < 0) {
      if (errno == EINTR) continue;
      char end; /* no cell is left: wait for the zygote's word */
      if (recv(3, &end, 1, 0) <= 0) _exit(0);
      continue;
    }
    struct statfs tmp = {0};
    statfs(".", &tmp);
    e.status = status;
    e.files = tmp.f_files - tmp.f_ffree > 1; /* one is the directory */
    e.tmp_kib = (tmp.f_blocks - tmp.f_bfree) * tmp.f_bsize >> 10;
    e.cpu_us = cpu_us(&usage);
    e.rss_kib = usage.ru_maxrss;
    if (send(3, &e, sizeof e, MSG_NOSIGNAL) < 0) _exit(0);
  }
}

/* In the first process of a new namespace; returns in its first cell. */
static int begin_session(struct call *c, int lane) {
  struct session *s = &sessions[c->session];
  pid_t first = fork_raw(0, 0);
  if (first < 0) fail_child(lane, 11);
  if (first > 0) {
    munmap((void *)stages, 4096);
    run_init(s->far[0]);
  }
  int step = streams(c->input, c->out, c->err, c->code);
  if (!step) step = confine(&c->ask);
  if (!step && dup2(s->far[1], CHANNEL) < 0) step = 12;
  if (!step && syscall(SYS_close_range, CHANNEL + 1u, ~0u, 0)) step = 8;
  if (!step) say_word(getpid());
  if (!step) step = seal(&c->ask);
  if (step) {
    stages[lane] = 1000 * step + errno;
    kill(1, SIGKILL); /* ignored; the zygote reads the stage when this process is reported */
    _exit(1);
  }
  stages[lane] = 1;
  munmap((void *)stages, 4096);
  return 0;
}

static int open_session(struct call *c) {
  int n = 0, events[2], cells[2];
  while (n < STATES && sessions[n].used) n++;
  if (n == STATES) return errno = ENOSPC, -1;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, events)) return -1;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, cells)) return close(events[0]), close(events[1]), -1;
  sessions[n] = (struct session){.used = 1, .pidfd = -1, .events = events[0], .cells = cells[0], .lane = -1,
                                 .far = {events[1], cells[1]}, .code = -1};
  c->session = n;
  return 0;
}

/* In the zygote, after the fork. */
static void started_session(struct call *c) {
  struct session *s = &sessions[c->session];
  close(s->far[0]);
  close(s->far[1]);
  s->init = c->pid;
  s->pidfd = c->pidfd;
  s->lane = c - lanes;
  c->pid = 0;
  c->pidfd = -1;
  watch(s->events, EPOLLIN, 2000 + c->session);
}

static void forget_state(struct state *st) {
  close(st->pidfd);
  st->key = 0;
}

static void end_session(int n) {
  struct session *s = &sessions[n];
  int lane = s->lane;
  s->used = 0;
  for (int i = 0; i < STATES; i++)
    if (states[i].key && states[i].session == n) forget_state(&states[i]);
  if (s->init) {
    syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, 0, 0);
    waitpid(s->init, 0, __WALL);
    close(s->pidfd);
    forget(s->events);
  } else {
    close(s->events);
    close(s->far[0]);
    close(s->far[1]);
  }
  close(s->cells);
  if (lane < 0 || !lanes[lane].busy) return;
  if (stages[lane] > 1) {
    lanes[lane].busy = 0;
    refuse(&lanes[lane], stages[lane]);
  } else finish(&lanes[lane], SIGKILL, 0, 0);
}

static struct state *state_of(int session, int inner, uint32_t key) {
  for (int i = 0; i < STATES; i++)
    if (states[i].key && (key ? states[i].key == key && !states[i].dropped : states[i].session == session && states[i].inner == inner))
      return &states[i];
  return 0;
}

static int states_of(int session) {
  int count = 0;
  for (int i = 0; i < STATES; i++) count += states[i].key && states[i].session == session && !states[i].dropped;
  return count;
}

/* A cell's own word: first its number, then, where it comes to its end, its exit code. */
static void hear(struct session *s) {
  int word;
  for (int i = 0; i < 8 && recv(s->cells, &word, sizeof word, MSG_DONTWAIT) == sizeof word; i++) {
    if (!s->cell) s->cell = word;
    else s->code = word & 0xff;
  }
}

static int running_cell(int n) {
  struct cell cells[CELLS];
  hear(&sessions[n]);
  int count = cells_of(sessions[n].init, cells);
  for (int i = 0; i < count; i++)
    if (cells[i].inner && cells[i].inner == sessions[n].cell) return cells[i].pid;
  return 0;
}

/* Ends what is in a session besides its stopped states, and besides its cell where that has paused, which goes to `paused`.
 * How many are not at rest: what is heard of them is an event, after which this is asked again. */
static int kill_rest(int n, struct cell *paused) {
  struct session *s = &sessions[n];
  struct cell cells[CELLS];
  int count = cells_of(s->init, cells), left = count == CELLS, pauses = s->over && WIFSTOPPED(s->end.status) && s->code >= 0;
  for (int i = 0; i < count; i++) {
    struct state *st = state_of(n, cells[i].inner, 0);
    if (st && st->dropped) continue; /* killed, and its death is nobody's */
    int stopped = cells[i].doing == 'T';
    if (st && stopped) continue;
    if (!st && stopped && pauses && cells[i].inner == s->cell) {
      *paused = cells[i];
      continue;
    }
    left++;
    if (cells[i].inner) kill(cells[i].pid, SIGKILL);
  }
  return left;
}

/* Whether a state that was woken to fork has not stopped yet: its message may be unread, and another cell would take it. */
static int is_awake(int n) {
  for (int i = 0; i < STATES; i++)
    if (states[i].key && states[i].session == n && states[i].awake) return 1;
  return 0;
}

/* At its deadline, or aborted. Where it is not over at the second time either, the session is. */
static void stop_session(struct call *c) {
  struct session *s = &sessions[c->session];
  struct cell none;
  hear(s);
  if (is_awake(c->session) || s->over || s->stopped || !s->cell || !kill_rest(c->session, &none)) return end_session(c->session);
  s->stopped = 1;
  c->deadline = now() + GRACE_NS;
}

static void drop_state(uint32_t key) {
  struct state *st = state_of(0, 0, key);
  if (!st) return;
  int n = st->session;
  st->dropped = 1; /* its death is still to be reported, and must not be taken for that of a cell */
  syscall(SYS_pidfd_send_signal, st->pidfd, SIGKILL, 0, 0);
  if (sessions[n].lane < 0 && !states_of(n)) end_session(n);
}

/* Lets the state that the call forks from go on. -1 where it is not there (any more). */
static int resume(struct call *c) {
  struct state *st = state_of(0, 0, c->ask.parent);
  if (!st || sessions[st->session].lane >= 0) return refuse(c, st ? EBUSY : ENOENT), -1;
  struct session *s = &sessions[st->session];
  if (limit_memory(st->pid, &c->ask)) return refuse(c, ENOENT), -1;
  int null = c->input < 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
  int fds[4] = {c->input < 0 ? null : c->input, c->out, c->err, c->code};
  for (char stale; recv(s->cells, &stale, 1, MSG_DONTWAIT) > 0;) continue;
  int lost = send_with(s->cells, &c->ask, fds);
  if (null >= 0) close(null);
  if (lost) return refuse(c, ENOENT), -1;
  s->cell = s->over = s->stopped = 0;
  s->code = -1;
  c->session = st->session;
  s->lane = c - lanes;
  st->awake = 1;
  stages[s->lane] = 1;
  syscall(SYS_pidfd_send_signal, st->pidfd, SIGCONT, 0, 0);
  return 0;
}

/* What keeping it costs: `kept_kib` where the states before it are there too, `held_kib` where it is all that is left. A
 * cell holds what it has beyond the zygote, and in place of the zygote's what was changed: mostly the same, cell after cell. */
static void weigh(struct session *s, struct state *st, const struct state *parent, const struct memory *memory, struct reply *r) {
  uint32_t before = parent ? parent->anonymous_kib : zygote_kib;
  uint32_t more = st->anonymous_kib > before ? st->anonymous_kib - before : 0, tmp = s->end.tmp_kib;
  uint32_t beyond = st->anonymous_kib > zygote_kib ? st->anonymous_kib - zygote_kib : 0;
  st->changed_kib = memory->own_kib > more ? memory->own_kib - more : 0;
  if (parent && parent->changed_kib > st->changed_kib) st->changed_kib = parent->changed_kib;
  r->kept_kib = memory->own_kib + (tmp > s->tmp_kib ? tmp - s->tmp_kib : 0);
  r->held_kib = beyond + st->changed_kib + tmp;
  if (r->held_kib < r->kept_kib) r->held_kib = r->kept_kib;
  s->tmp_kib = tmp;
}

/* The call is over and nothing of it runs: it is answered. Where its cell has paused, that is a state from now on. */
static void conclude(int n, const struct cell *paused) {
  struct session *s = &sessions[n];
  struct call *c = &lanes[s->lane];
  const struct state *parent = c->ask.parent ? state_of(0, 0, c->ask.parent) : 0;
  int slot = 0, pidfd = -1, status = paused->pid ? s->code << 8 : WIFSTOPPED(s->end.status) ? SIGKILL : s->end.status;
  uint32_t key = c->ask.state;
  while (slot < STATES && states[slot].key) slot++;
  if (paused->pid && slot < STATES) pidfd = syscall(SYS_pidfd_open, paused->pid, 0);
  if (paused->pid && pidfd < 0) kill(paused->pid, SIGKILL); /* there is no room for it */
  struct memory memory = pidfd < 0 ? (struct memory){0} : memory_of(paused->pid);
  s->lane = -1;
  struct reply *r = finish(c, status, s->end.cpu_us, s->end.rss_kib);
  if (s->end.files || (pidfd >= 0 && (memory.shared || has_descriptors(paused->pid)))) r->kept = FILES;
  if (pidfd >= 0) {
    struct state *st = &states[slot];
    *st = (struct state){.key = key, .session = n, .inner = paused->inner, .pid = paused->pid, .pidfd = pidfd,
                         .anonymous_kib = paused->anonymous_kib};
    r->kept |= PAUSED;
    weigh(s, st, parent, &memory, r);
  }
  if (!states_of(n)) end_session(n);
}

static void session_event(int n) {
  struct session *s = &sessions[n];
  struct event e;
  if (!s->used) return;
  ssize_t got = recv(s->events, &e, sizeof e, MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return;
  if (got != sizeof e) return end_session(n);
  struct state *st = state_of(n, e.pid, 0);
  struct call *c = s->lane < 0 ? 0 : &lanes[s->lane];
  if (st && WIFSTOPPED(e.status)) {
    if (!st->awake) return end_session(n); /* it was woken, and not by this process */
    st->awake = 0;
  } else if (st) {
    if (st->awake && c) { /* it could not fork: too many states */
      stages[s->lane] = 11000 + EAGAIN;
      return end_session(n);
    }
    forget_state(st);
    if (!c && !states_of(n)) return end_session(n);
  } else if (c && !s->over) {
    if (stages[s->lane] != 1 && !c->timed_out) return end_session(n);
    hear(s);
    if (e.pid == s->cell) {
      s->over = 1;
      s->end = e;
      c->deadline = now() + GRACE_NS;
    }
  }
  struct cell paused = {0};
  if (c && s->over && !is_awake(n) && !kill_rest(n, &paused)) conclude(n, &paused);
}
