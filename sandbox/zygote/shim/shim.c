/*
 * The zygote's serve loop: takes calls from the pool, forks an isolated child for each, reports how it ended.
 *
 * in   request frames on config->in; a warm interpreter as the memory of this process
 * out  reply frames on config->out
 * Invariant: a child's status comes from wait4 and this process's clock, its output from memfds that nobody else
 * writes. A child holds no descriptor of the zygote but its own streams, its code and, in a session, CHANNEL (cells.h),
 * and sees no byte of another call: the buffers are never forked.
 *
 * zygote_serve returns in a child (0, ready to run its code) and, when `in` ends, in the zygote (-1). The shim needs no
 * Python.h: zygote.py loads it with ctypes, so that a C compiler is all that set-up needs.
 */
#include "state.h"

#include "arenas.h"
#include "frames.h"
#include "isolation.h"
#include "output.h"
#include "cells.h"
#include "session_cell.h"
#include "sessions.h"
#include "admission.h"

/* Starts a call in a free slot. Returns 1 in the child. */
static int start_call(struct call *waiting) {
  int lane = 0;
  while (lanes[lane].busy) lane++;
  struct call *c = &lanes[lane];
  *c = *waiting;
  int flags_of_streams = MFD_CLOEXEC | (c->request.flags & SESSION ? MFD_ALLOW_SEALING : 0);
  c->out = memfd_create("stdout", flags_of_streams);
  c->err = memfd_create("stderr", flags_of_streams);
  c->pidfd = c->session = -1;
  c->timed_out = c->asleep = c->is_long = c->is_loud = 0;
  c->began = c->sampled = c->trimmed = now();
  c->deadline = c->began + c->request.timeout_ms * 1000000ull;
  c->cpu = c->idled = 0;
  if (c->out < 0 || c->err < 0) return refuse(c, errno), 0;
  if (c->request.flags & SESSION && c->request.parent) {
    if (resume_state(c)) return 0;
  } else {
    if (c->request.flags & SESSION && open_session(c)) return refuse(c, errno), 0;
    unsigned long flags = CLONE_PIDFD;
    if (config->layers & NAMESPACES) flags |= CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC;
    stages[lane] = 0;
    c->pid = fork_raw(flags, &c->pidfd);
    if (c->pid == 0) return isolate(c, lane), 1;
    if (c->pid < 0) {
      int error = errno;
      if (c->session >= 0) end_session(c->session);
      return refuse(c, error), 0;
    }
    if (c->session >= 0) session_started(c);
    else watch(c->pidfd, EPOLLIN, lane);
  }
  c->busy = 1;
  long_share -= long_share / RECENT;
  close(c->code);
  if (c->input >= 0) close(c->input);
  c->code = c->input = -1;
  add_reply(BEGUN, c->request.id, 0);
  return 0;
}

/* Answers the call of a child that has exited, or refuses it if the child's isolation failed. */
static void child_ended(int lane) {
  struct call *c = &lanes[lane];
  struct rusage usage;
  int status;
  if (!c->busy || wait4(c->pid, &status, WNOHANG | __WALL, &usage) != c->pid) return;
  unwatch(c->pidfd);
  c->pidfd = -1;
  if (stages[lane] != 1 && !c->timed_out && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
    c->busy = 0;
    return refuse(c, stages[lane] ? stages[lane] : 1);
  }
  answer(c, status, cpu_us(&usage), usage.ru_maxrss);
}

/* Kills a running call that was aborted or whose deadline has passed. */
static void stop(struct call *c) {
  if (c->session >= 0) stop_session(c);
  else syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, 0, 0);
}

/* Refuses the waiting call with this id, if there is one. */
static void cancel_pending(uint32_t id) {
  int kept = 0;
  for (int i = 0; i < pending_count; i++) {
    struct call *c = &pending[(pending_first + i) % PENDING];
    if (c->request.id == id) refuse(c, ECANCELED);
    else pending[(pending_first + kept++) % PENDING] = *c;
  }
  pending_count = kept;
}

/* Takes one whole frame from the input. Returns 0 if there is none, or if it is a call and `pending` is full. */
static int take_frame(void) {
  struct request request;
  if (in.used < sizeof request.bytes) return 0;
  memcpy(&request.bytes, in.at, sizeof request.bytes);
  if (request.bytes < sizeof request || request.bytes > 256u << 20) exit(2);
  if (in.used < request.bytes) return reserve(&in, request.bytes - in.used) ? exit(1), 0 : 0;
  memcpy(&request, in.at, sizeof request);
  if (request.kind == RUN && pending_count == PENDING) return 0;
  const char *code = in.at + sizeof request;
  if (request.kind == RUN) {
    struct call *c = &pending[(pending_first + pending_count++) % PENDING];
    memset(c, 0, sizeof *c);
    c->request = request;
    c->out = c->err = -1;
    c->code = sealed_file("code", code, request.code_len);
    c->input = request.stdin_len ? sealed_file("stdin", code + request.code_len, request.stdin_len) : -1;
  } else if (request.kind == STOP) {
    for (int i = 0; i < LANES; i++)
      if (lanes[i].busy && lanes[i].request.id == request.id) stop(&lanes[i]);
    cancel_pending(request.id);
  } else if (request.kind == DROP) drop_state(request.state);
  else if (request.kind == PING) add_reply(PONG, request.id, 0);
  in.used -= request.bytes;
  memmove(in.at, in.at + request.bytes, in.used);
  if (in.used == 0 && in.size > 1 << 20) {
    munmap(in.at, in.size);
    in = (struct buffer){0};
  }
  return 1;
}

/* Kills and reaps every child, so that no process is left when the zygote ends. */
static int end(void) {
  for (int i = 0; i < LANES; i++)
    if (lanes[i].busy && lanes[i].session < 0) stop(&lanes[i]);
  for (int i = 0; i < LANES; i++)
    if (lanes[i].busy && lanes[i].session < 0) waitpid(lanes[i].pid, 0, __WALL);
  for (int i = 0; i < STATES; i++)
    if (sessions[i].used) end_session(i);
  return -1;
}

/*
 * Serves until `in` ends (-1) or this process is a child (0). A child finds its code on descriptor 3, its request in
 * `request`.
 */
int zygote_serve(const struct config *given, struct request *request) {
  config = given;
  stages = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (prctl(PR_GET_TID_ADDRESS, &tid_address, 0, 0, 0)) tid_address = 0;
  epoll = epoll_create1(EPOLL_CLOEXEC);
  fcntl(config->in, F_SETFL, fcntl(config->in, F_GETFL) | O_NONBLOCK);
  fcntl(config->out, F_SETFL, fcntl(config->out, F_GETFL) | O_NONBLOCK);
  int taking = 1, blocked = 0;
  watch(config->in, EPOLLIN, IN_EVENT);
  zygote_kib = anonymous_kib("self");
  add_reply(READY, config->layers, 0)->status = getpid();
  for (;;) {
    int full = !flush();
    if (full && !blocked) watch(config->out, EPOLLOUT, OUT_EVENT);
    if (!full && blocked) epoll_ctl(epoll, EPOLL_CTL_DEL, config->out, 0);
    blocked = full;
    struct epoll_event events[64];
    int n = epoll_wait(epoll, events, 64, wait_ms(now()));
    for (int i = 0; i < n; i++) {
      uint64_t tag = events[i].data.u64;
      if (tag < LANES) child_ended(tag);
      else if (tag >= SESSION_EVENT) session_event(tag - SESSION_EVENT);
      else if (tag == IN_EVENT) {
        if (reserve(&in, 1 << 16)) return end();
        ssize_t got = read(config->in, in.at + in.used, in.size - in.used);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return end();
        if (got > 0) in.used += got;
      }
    }
    while (take_frame()) continue;
    full = pending_count == PENDING || out.used > 64u << 20;
    if (full == taking) { /* backpressure: the pool keeps frames that are not read */
      struct epoll_event e = {full ? 0 : EPOLLIN, {.u64 = IN_EVENT}};
      epoll_ctl(epoll, EPOLL_CTL_MOD, config->in, &e);
      taking = !full;
    }
    uint64_t at = now();
    for (int i = 0; i < LANES; i++)
      if (lanes[i].busy && lanes[i].deadline <= at) {
        lanes[i].deadline = UINT64_MAX;
        if (lanes[i].session < 0 || !sessions[lanes[i].session].over) lanes[i].timed_out = 1;
        stop(&lanes[i]);
      }
    sample(at);
    trim(at);
    while (pending_count) {
      int place = next_pending();
      struct call c = pending[(pending_first + place) % PENDING];
      if (!has_room(c.request.flags & URGENT)) break;
      take_pending(place);
      if (c.code < 0) refuse(&c, ENOMEM);
      else if (start_call(&c)) {
        *request = c.request;
        return 0;
      }
    }
  }
}
