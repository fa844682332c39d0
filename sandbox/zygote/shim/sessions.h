/*
 * Sessions, as the zygote sees them: namespaces whose cells stay as stopped processes. Part of shim.c.
 *
 * in   cells 0, 1, … of a session, each with the state that it forks from; events of the first process
 * out  the reply of each cell, and a state: a stopped process
 * Invariant: a call is over when the kernel reports its cell stopped or dead, and answered when only stopped states are
 * left in the namespace. A cell that misbehaves ends its whole session; the pool rebuilds the session from its recorded
 * cells.
 */

enum { GRACE_NS = 1000000000 }; /* Time (1 s) within which the processes that a cell left must die. */

/* Sends a request and the descriptors of its streams and code to a stopped cell. Returns 0, or -1 if that fails. */
static int send_with(int socket, const struct request *request, const int *fds) {
  char space[CMSG_SPACE(4 * sizeof(int))];
  struct iovec part = {(void *)request, sizeof *request};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(4 * sizeof(int));
  memcpy(CMSG_DATA(head), fds, 4 * sizeof(int));
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/* Reserves a slot and sockets for a new session, before the fork. Returns -1, with errno set, if there are none. */
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

/* Records a new session's first process, in the zygote, after the fork. */
static void session_started(struct call *c) {
  struct session *s = &sessions[c->session];
  close(s->far[0]);
  close(s->far[1]);
  s->init = c->pid;
  s->pidfd = c->pidfd;
  s->lane = c - lanes;
  c->pid = 0;
  c->pidfd = -1;
  watch(s->events, EPOLLIN, SESSION_EVENT + c->session);
}

static void forget_state(struct state *st) {
  close(st->pidfd);
  st->key = 0;
  while (states_end > 0 && !states[states_end - 1].key) states_end--;
}

/* Kills every process of a session and forgets its states. A running call is refused or answered as killed. */
static void end_session(int n) {
  struct session *s = &sessions[n];
  int lane = s->lane;
  s->used = 0;
  for (int i = 0; i < states_end; i++)
    if (states[i].key && states[i].session == n) forget_state(&states[i]);
  if (s->init) {
    syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, 0, 0);
    waitpid(s->init, 0, __WALL);
    close(s->pidfd);
    unwatch(s->events);
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
  } else answer(&lanes[lane], SIGKILL, 0, 0);
}

/* Finds a state by its key or, if the key is 0, by its session and the pid of its process in that session. */
static struct state *state_of(int session, int inner, uint32_t key) {
  for (int i = 0; i < states_end; i++)
    if (states[i].key && (key ? states[i].key == key && !states[i].dropped
                              : states[i].session == session && states[i].inner == inner))
      return &states[i];
  return 0;
}

static int states_of(int session) {
  int count = 0;
  for (int i = 0; i < states_end; i++) count += states[i].key && states[i].session == session && !states[i].dropped;
  return count;
}

/*
 * Reads the claims of the running cell (what it reports itself): first its pid, then, if it comes to its end, its exit
 * code.
 */
static void read_claims(struct session *s) {
  int word;
  for (int i = 0; i < 8 && recv(s->cells, &word, sizeof word, MSG_DONTWAIT) == sizeof word; i++) {
    if (!s->cell) s->cell = word;
    else s->code = word & 0xff;
  }
}

/* Returns the running cell's pid outside the namespace; 0 if it is not known yet. */
static int running_cell(int n) {
  struct cell cells[CELLS];
  read_claims(&sessions[n]);
  int count = cells_of(sessions[n].init, cells);
  for (int i = 0; i < count; i++)
    if (cells[i].inner && cells[i].inner == sessions[n].cell) return cells[i].pid;
  return 0;
}

/*
 * Kills every process of a session that is neither a stopped state nor the cell that has just paused, which is copied
 * to `paused`. Returns the number of processes that still have to die: each death is an event, after which this is
 * called again.
 */
static int kill_rest(int n, struct cell *paused) {
  struct session *s = &sessions[n];
  struct cell cells[CELLS];
  int count = cells_of(s->init, cells), left = count == CELLS, pauses = s->over && WIFSTOPPED(s->end.status) && s->code >= 0;
  for (int i = 0; i < count; i++) {
    struct state *st = state_of(n, cells[i].inner, 0);
    if (st && st->dropped) continue; /* This state was killed already; its death belongs to no cell. */
    int stopped = cells[i].state == 'T';
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

/*
 * Returns 1 while a state that was continued to fork has not stopped again. It may not have read its message yet, and
 * another cell would take the message.
 */
static int is_awake(int n) {
  for (int i = 0; i < states_end; i++)
    if (states[i].key && states[i].session == n && states[i].awake) return 1;
  return 0;
}

/*
 * Kills a cell whose deadline has passed or whose call is aborted. If the cell cannot be found yet, has ended already,
 * or is not gone after GRACE_NS, its whole session ends.
 */
static void stop_session(struct call *c) {
  struct session *s = &sessions[c->session];
  struct cell none;
  read_claims(s);
  if (is_awake(c->session) || s->over || s->stopped || !s->cell || !kill_rest(c->session, &none))
    return end_session(c->session);
  s->stopped = 1;
  c->deadline = now() + GRACE_NS;
}

/*
 * Ends a state from which nobody will fork any more; with the last state of a session in which no call runs, the
 * session ends too.
 */
static void drop_state(uint32_t key) {
  struct state *st = state_of(0, 0, key);
  if (!st) return;
  int n = st->session;
  st->dropped = 1; /* Marks the state: its reported death must not be taken for a running cell's. */
  syscall(SYS_pidfd_send_signal, st->pidfd, SIGKILL, 0, 0);
  if (sessions[n].lane < 0 && !states_of(n)) end_session(n);
}

/*
 * Continues the state that the call forks from. Refuses the call and returns -1 if that state does not exist (any
 * more), cannot take the request, or its session runs another call.
 */
static int resume_state(struct call *c) {
  struct state *st = state_of(0, 0, c->request.parent);
  if (!st || sessions[st->session].lane >= 0) return refuse(c, st ? EBUSY : ENOENT), -1;
  struct session *s = &sessions[st->session];
  if (limit_memory(st->pid, &c->request)) return refuse(c, ENOENT), -1;
  int null = c->input < 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
  int fds[4] = {c->input < 0 ? null : c->input, c->out, c->err, c->code};
  for (char stale; recv(s->cells, &stale, 1, MSG_DONTWAIT) > 0;) continue;
  int lost = send_with(s->cells, &c->request, fds);
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

/*
 * Measures what a state costs to keep: `kept_kib` while the states before it exist, `held_kib` once they are gone. A
 * cell holds its memory beyond the zygote's, and its changed copies of the zygote's pages: mostly the same pages, cell
 * after cell.
 */
static void measure_state(struct session *s, struct state *st, const struct state *parent, const struct memory *memory, struct reply *r) {
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

/* Answers a call that has ended, when none of its processes runs any more. A cell that has paused becomes a state. */
static void end_call(int n, const struct cell *paused) {
  struct session *s = &sessions[n];
  struct call *c = &lanes[s->lane];
  const struct state *parent = c->request.parent ? state_of(0, 0, c->request.parent) : 0;
  int slot = 0, pidfd = -1, status = paused->pid ? s->code << 8 : WIFSTOPPED(s->end.status) ? SIGKILL : s->end.status;
  uint32_t key = c->request.state;
  while (slot < STATES && states[slot].key) slot++;
  if (paused->pid && slot < STATES) pidfd = syscall(SYS_pidfd_open, paused->pid, 0);
  /* Kills a paused cell that cannot be kept as a state: no slot of `states` is free, or it has no pidfd. */
  if (paused->pid && pidfd < 0) kill(paused->pid, SIGKILL);
  struct memory memory = pidfd < 0 ? (struct memory){0} : memory_of(paused->pid);
  s->lane = -1;
  struct reply *r = answer(c, status, s->end.cpu_us, s->end.rss_kib);
  if (s->end.files || (pidfd >= 0 && (memory.shared || has_descriptors(paused->pid)))) r->kept = FILES;
  if (pidfd >= 0) {
    struct state *st = &states[slot];
    if (slot >= states_end) states_end = slot + 1;
    *st = (struct state){.key = key, .session = n, .inner = paused->inner, .pid = paused->pid, .pidfd = pidfd,
                         .anonymous_kib = paused->anonymous_kib};
    r->kept |= PAUSED;
    measure_state(s, st, parent, &memory, r);
  }
  if (!states_of(n)) end_session(n);
}

/* Handles one report of a session's first process: a state or a cell stopped or died. */
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
    if (!st->awake) return end_session(n); /* A process other than the zygote continued this state. */
    st->awake = 0;
  } else if (st) {
    if (st->awake && c) { /* The state could not fork: the namespace has too many processes. */
      stages[s->lane] = 11000 + EAGAIN;
      return end_session(n);
    }
    forget_state(st);
    if (!c && !states_of(n)) return end_session(n);
  } else if (c && !s->over) {
    if (stages[s->lane] != 1 && !c->timed_out) return end_session(n);
    read_claims(s);
    if (e.pid == s->cell) {
      s->over = 1;
      s->end = e;
      c->deadline = now() + GRACE_NS;
    }
  }
  struct cell paused = {0};
  if (c && s->over && !is_awake(n) && !kill_rest(n, &paused)) end_call(n, &paused);
}
