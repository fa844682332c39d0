/*
 * Sessions: a namespace whose cells stay. Part of shim.c.
 *
 * in   cells 0, 1, … of a session, each with the state it forks from      out  its reply, and a state: a stopped process
 * Invariant: the namespace's first process runs this file alone; it reaps the cells and tells the zygote what wait4 said,
 * over a socket that no cell has. A cell is over when the kernel reports it stopped or dead. What a cell says itself (its
 * exit code) decides nothing but its own result. Where a cell does what it should not, its whole session is ended; the
 * pool rebuilds it from the recorded cells.
 */

enum { CHANNEL = 4 }; /* the descriptor on which a stopped cell finds the next one */

static void send_with(int socket, const struct request *ask, const int *fds) {
  char space[CMSG_SPACE(4 * sizeof(int))];
  struct iovec part = {(void *)ask, sizeof *ask};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(4 * sizeof(int));
  memcpy(CMSG_DATA(head), fds, 4 * sizeof(int));
  sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Called by a cell that is over: stops; in the fork that the next cell runs in, returns what it shall do. */
int zygote_pause(int code, struct request *told) {
  send(CHANNEL, &code, sizeof code, MSG_DONTWAIT | MSG_NOSIGNAL);
  for (;;) {
    kill(getpid(), SIGSTOP);
    pid_t next = fork_raw(CLONE_PARENT, 0);
    if (next < 0) _exit(1);
    if (next > 0) continue;
    char space[CMSG_SPACE(4 * sizeof(int))];
    struct iovec part = {told, sizeof *told};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (recvmsg(CHANNEL, &message, 0) != sizeof *told || !CMSG_FIRSTHDR(&message)) _exit(1);
    int fds[4];
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
    for (int i = 0; i < 4; i++) {
      dup2(fds[i], i);
      if (fds[i] > CHANNEL) close(fds[i]);
    }
    return 0;
  }
}

static int has_files(void) {
  char space[512];
  int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), entries = 0;
  long n = fd < 0 ? 0 : syscall(SYS_getdents64, fd, space, sizeof space);
  for (long at = 0; at < n; at += *(unsigned short *)(space + at + 16)) entries++;
  close(fd);
  return entries > 2;
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
    e.status = status;
    e.cpu_us = cpu_us(&usage);
    e.rss_kib = usage.ru_maxrss;
    e.files = has_files();
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
  sessions[n] = (struct session){1, 0, -1, events[0], cells[0], -1, {events[1], cells[1]}};
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

/* The process ids of a session's cells, as this process sees them; `inner` as they see themselves. */
static int cells_of(const struct session *s, int *pids, int *inner, int most) {
  char path[64], text[4096], status[2048];
  int n = 0;
  snprintf(path, sizeof path, "%d/task/%d/children", s->init, s->init);
  if (read_proc(path, text, sizeof text)) return 0;
  for (char *at = text, *end; n < most && (pids[n] = strtol(at, &end, 10)) > 0; at = end, n++) {
    snprintf(path, sizeof path, "%d/status", pids[n]);
    inner[n] = 0;
    if (read_proc(path, status, sizeof status)) continue;
    char *line = strstr(status, "NSpid:"), *stop = line ? strchr(line, '\n') : 0;
    if (!stop) continue;
    *stop = 0;
    inner[n] = atoi(strrchr(line, '\t') + 1);
  }
  return n;
}

static int running_cell(int n) {
  int pids[128], inner[128];
  int count = cells_of(&sessions[n], pids, inner, 128);
  for (int i = 0; i < count; i++)
    if (!state_of(n, inner[i], 0)) return pids[i];
  return 0;
}

/* Ends what runs in a session besides its stopped states. */
static int kill_running(int n) {
  int pids[128], inner[128], killed = 0;
  int count = cells_of(&sessions[n], pids, inner, 128);
  for (int i = 0; i < count; i++) {
    struct state *st = state_of(n, inner[i], 0);
    if (st && !st->awake) continue;
    kill(pids[i], SIGKILL);
    killed++;
  }
  return killed;
}

static void stop_session(struct call *c) {
  int n = c->session, awake = 0;
  for (int i = 0; i < STATES; i++) awake |= states[i].key && states[i].session == n && states[i].awake;
  if (awake || !kill_running(n)) end_session(n); /* its message may be unread: another cell would take it */
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
  send_with(s->cells, &c->ask, fds);
  if (null >= 0) close(null);
  c->session = st->session;
  s->lane = c - lanes;
  st->awake = 1;
  stages[s->lane] = 1;
  syscall(SYS_pidfd_send_signal, st->pidfd, SIGCONT, 0, 0);
  return 0;
}

/* What only this cell has of memory: it is what keeping it costs. */
static uint32_t private_kib(int pid) {
  char path[32], text[4096];
  snprintf(path, sizeof path, "%d/smaps_rollup", pid);
  if (read_proc(path, text, sizeof text)) return 0;
  return number_after(text, "Private_Dirty:") + number_after(text, "Private_Clean:");
}

/* The running cell has stopped, which is how it says that it is over: its process becomes a state. */
static void keep(int n, const struct event *e) {
  struct session *s = &sessions[n];
  struct call *c = &lanes[s->lane];
  int pids[128], inner[128], pid = 0, code = 1, got, slot = 0, over = 0;
  while (recv(s->cells, &got, sizeof got, MSG_DONTWAIT) > 0) code = got & 0xff, over = 1;
  int count = cells_of(s, pids, inner, 128);
  for (int i = 0; i < count; i++) {
    if (inner[i] == e->pid) pid = pids[i];
    else if (!state_of(n, inner[i], 0)) kill(pids[i], SIGKILL); /* a process that nobody asked for */
  }
  while (slot < STATES && states[slot].key) slot++;
  int pidfd = pid ? syscall(SYS_pidfd_open, pid, 0) : -1;
  s->lane = -1;
  struct reply *r;
  if (pidfd < 0 || slot == STATES) {
    if (pid) kill(pid, SIGKILL);
    r = finish(c, code << 8, e->cpu_us, e->rss_kib);
  } else {
    states[slot] = (struct state){c->ask.state, n, e->pid, pid, pidfd, 0, 0};
    uint32_t kib = private_kib(pid);
    if (!over) { /* it stopped itself in the middle: nothing could go on from there */
      states[slot].dropped = 1;
      kill(pid, SIGKILL);
      finish(c, SIGKILL, e->cpu_us, e->rss_kib)->kept = e->files ? FILES : 0;
      return;
    }
    r = finish(c, code << 8, e->cpu_us, e->rss_kib);
    r->kept = PAUSED | (e->files ? FILES : 0);
    r->kept_kib = kib;
  }
}

static void session_event(int n) {
  struct session *s = &sessions[n];
  struct event e;
  if (!s->used) return;
  ssize_t got = recv(s->events, &e, sizeof e, MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return;
  if (got != sizeof e) return end_session(n);
  struct state *st = state_of(n, e.pid, 0);
  if (st) {
    if (WIFSTOPPED(e.status)) st->awake = 0;
    else if (st->awake && s->lane >= 0) { /* it could not fork: too many states */
      stages[s->lane] = 11000 + EAGAIN;
      end_session(n);
    } else forget_state(st);
    return;
  }
  if (s->lane < 0) return; /* a stray that was killed */
  if (WIFSTOPPED(e.status)) return keep(n, &e);
  struct call *c = &lanes[s->lane];
  int lane = s->lane;
  if (stages[lane] != 1 && !c->timed_out) return end_session(n);
  s->lane = -1;
  finish(c, e.status, e.cpu_us, e.rss_kib)->kept = e.files ? FILES : 0;
  if (!states_of(n)) end_session(n);
}
