/*
 * The processes inside a session's namespace: its first process, and its cells. Part of shim.c.
 *
 * in   a forked child; the next cell's request and descriptors, over CHANNEL
 * out  events over a socket that no cell has
 * Invariant: the first process runs only the code below; it reaps the cells and reports the results of wait4. The
 * claims of a cell (what it reports itself: its pid, its exit code) decide only the cell's own result, and whether its
 * session must be rebuilt.
 */

/* Sends a claim of a cell to the zygote: first its pid, later its exit code. */
static void send_word(int word) { send(CHANNEL, &word, sizeof word, MSG_DONTWAIT | MSG_NOSIGNAL); }

static sigset_t mask_of_cell;
static int signals_blocked;

/* Blocks every signal and stops every timer of a cell that has ended: a signal could kill its stopped process. */
void zygote_block_signals(void) {
  sigset_t all;
  sigfillset(&all);
  if (!signals_blocked) sigprocmask(SIG_BLOCK, &all, &mask_of_cell);
  signals_blocked = 1;
  for (int timer = ITIMER_REAL; timer <= ITIMER_PROF; timer++) setitimer(timer, &(struct itimerval){0}, 0);
}

/*
 * Stops a cell that has ended. When the zygote continues the cell, it forks; the fork runs the next cell, and returns
 * the descriptor of that cell's code.
 */
int zygote_pause(int code, struct request *request) {
  send_word(code);
  pid_t next;
  do {
    kill(getpid(), SIGSTOP);
    next = fork_raw(CLONE_PARENT, 0);
  } while (next > 0);
  if (next < 0) _exit(1);
  send_word(getpid());
  for (int i = 0; i < 3; i++) close(i); /* Frees descriptors 0 to 2, which the received streams take. */
  char space[CMSG_SPACE(4 * sizeof(int))];
  struct iovec part = {request, sizeof *request};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  if (recvmsg(CHANNEL, &message, 0) != sizeof *request || !CMSG_FIRSTHDR(&message)) _exit(1);
  if (CMSG_FIRSTHDR(&message)->cmsg_len != CMSG_LEN(4 * sizeof(int))) {
    dprintf(2, "earlier cells of this session left no descriptor free: close files that are not needed\n");
    _exit(1);
  }
  int fds[4];
  memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
  signals_blocked = 0;
  sigprocmask(SIG_SETMASK, &mask_of_cell, 0);
  return fds[3];
}

/*
 * Runs as the namespace's first process. It ends with the zygote; the kernel then ends all processes in the namespace.
 */
static void run_init(int events) {
  dup2(events, 3);
  syscall(SYS_close_range, 4u, ~0u, 0);
  for (;;) {
    struct rusage usage;
    int status;
    struct event e = {.pid = wait4(-1, &status, WUNTRACED | __WALL, &usage)};
    if (e.pid < 0) {
      if (errno == EINTR) continue;
      char end; /* No cell is left: waits until the zygote closes the socket. */
      if (recv(3, &end, 1, 0) <= 0) _exit(0);
      continue;
    }
    struct statfs tmp = {0};
    statfs(".", &tmp);
    e.status = status;
    e.files = tmp.f_files - tmp.f_ffree > 1; /* One file is the directory /tmp itself. */
    e.tmp_kib = (tmp.f_blocks - tmp.f_bfree) * tmp.f_bsize >> 10;
    e.cpu_us = cpu_us(&usage);
    e.rss_kib = usage.ru_maxrss;
    if (send(3, &e, sizeof e, MSG_NOSIGNAL) < 0) _exit(0);
  }
}

/* In the first process of a new namespace: forks the first cell. Returns only in that cell. */
static int begin_session(struct call *c, int lane) {
  struct session *s = &sessions[c->session];
  pid_t first = fork_raw(0, 0);
  if (first < 0) fail_isolation(lane, 11);
  if (first > 0) {
    munmap((void *)stages, 4096);
    run_init(s->far[0]);
  }
  int step = set_streams(c->input, c->out, c->err, c->code);
  if (!step) step = confine(&c->request);
  if (!step && dup2(s->far[1], CHANNEL) < 0) step = 12;
  if (!step && syscall(SYS_close_range, CHANNEL + 1u, ~0u, 0)) step = 8;
  if (!step) send_word(getpid());
  if (!step) step = install_filter(&c->request);
  if (step) {
    stages[lane] = 1000 * step + errno;
    /* The kernel ignores this signal to init; the zygote reads the stage when init reports this process's end. */
    kill(1, SIGKILL);
    _exit(1);
  }
  stages[lane] = 1;
  munmap((void *)stages, 4096);
  return 0;
}

