/*
 * The zygote's serve loop: takes calls from a socket, forks an isolated child for each, says how it ended.
 *
 * in   request frames on `in`; a warm interpreter as the memory of this process     out  reply frames on `out`
 * Invariant: a child's status comes from wait4 and this clock, its output from memfds that nobody else writes. A child
 * holds no descriptor of ours but its own streams, and sees no byte of another call: the buffers here are never forked.
 *
 * zygote_serve returns in a child (>= 0, ready to run its code) and, when `in` ends, in the zygote (-1). No Python.h:
 * it is loaded with ctypes, so that a compiler is all that set-up needs. See wire.py for the frames.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif
#ifndef P_PIDFD
#define P_PIDFD 3
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x10
#endif
#ifndef PR_GET_TID_ADDRESS
#define PR_GET_TID_ADDRESS 40
#endif

enum { LANES = 60, PENDING = 64, STATES = 512 };
enum { NAMESPACES = 1, SECCOMP = 2, LANDLOCK = 4, LIMITS = 8 };                   /* config.layers */
enum { CELL = 1, PROCESSES = 2, SESSION = 4 };                                    /* request.flags */
enum { RUN = 1, STOP = 2, DROP = 3, PING = 4 };                                   /* request.kind */
enum { READY = 1, BEGUN = 2, DONE = 3, FAILED = 4, PONG = 5 };                    /* reply.kind */
enum { PAUSED = 1, FILES = 2 };                                                   /* reply.kept */
enum { SAMPLE_NS = 4000000, LONG_NS = 50000000, LONG_NICE = 5, TRIM_NS = 2000000, SPARE_BYTES = 1 << 20 };
enum { NEVER_WRITTEN = F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL }; /* unlike F_SEAL_WRITE it lets code map its input */

struct config {
  int32_t in, out, proc, self, landlock, layers, uid, runnable, longest, spare;  /* descriptors, then numbers */
  uint64_t base_bytes, file_bytes;
  uint32_t open_files, tmp_mb, tmp_mb_processes, threads;
  const struct sock_filter *filter, *filter_processes, *filter_session;
  uint32_t filter_length, filter_processes_length, filter_session_length, pid_at[4];
  char uid_map[32], gid_map[32], scratch[64];
};
struct request {
  uint32_t bytes, kind, id, flags, timeout_ms, processes, memory_mb, max_output, state, parent, seed[2], code_len, stdin_len;
};
struct reply {
  uint32_t bytes, kind, id, status, timed_out, wall_us, cpu_us, rss_kib, out_len, err_len, out_total, err_total;
  uint32_t kept, kept_kib, held_kib, error, out_high, err_high; /* sizes are 64 bits */
};
struct call {
  struct request ask;
  int code, input, out, err, pidfd, pid, busy, timed_out, asleep, is_long, is_loud, session;
  uint64_t began, deadline, sampled, trimmed, cpu;
};
struct event { int32_t pid, status, files, tmp_kib; uint64_t cpu_us, rss_kib; };
struct session { /* a namespace with a trusted first process; `far` are its ends of the sockets */
  int used, init, pidfd, events, cells, lane, far[2];
  uint32_t tmp_kib;
  int cell, code, over, stopped; /* of the call in `lane`: its process's own number, how that ended, as it says; `end`: as the kernel does */
  struct event end;
};
struct state { /* a cell's process, stopped: the next cell forks from it */
  uint32_t key;
  int session, inner, pid, pidfd, awake, dropped;
  uint32_t anonymous_kib, changed_kib; /* all that it has; what it has changed of the zygote's */
};
struct buffer { char *at; size_t size, used; };

static const struct config *config;
static struct call lanes[LANES], pending[PENDING];
static int pending_first, pending_count, epoll;
static struct session sessions[STATES];
static struct state states[STATES];
static struct buffer in, out;
static volatile uint32_t *stages; /* one word a lane, shared with the child until it is ready */
static pid_t *tid_address;

#include "arenas.h"

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Grows by a new mapping: memory from malloc could not be kept out of the children. */
static int reserve(struct buffer *b, size_t more) {
  if (b->used + more <= b->size) return 0;
  size_t size = b->size ? b->size : 1 << 18;
  while (size < b->used + more) size *= 2;
  char *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return -1;
  madvise(at, size, MADV_DONTFORK);
  if (b->used) memcpy(at, b->at, b->used);
  if (b->size) munmap(b->at, b->size);
  b->at = at;
  b->size = size;
  return 0;
}

static struct reply *say(uint32_t kind, uint32_t id, size_t more) {
  if (reserve(&out, sizeof(struct reply) + more)) exit(1);
  struct reply *r = (struct reply *)(out.at + out.used);
  memset(r, 0, sizeof *r);
  r->bytes = sizeof *r + more;
  r->kind = kind;
  r->id = id;
  out.used += sizeof *r;
  return r;
}

/* Writes what it can; true when nothing is left. */
static int flush(void) {
  size_t done = 0;
  while (done < out.used) {
    ssize_t n = write(config->out, out.at + done, out.used - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) exit(0); /* nobody listens */
    if (n < 0) break;
    done += n;
  }
  memmove(out.at, out.at + done, out.used - done);
  out.used -= done;
  return out.used == 0;
}

/* What code is given, it can read and not fill. */
static int filled(const char *name, const char *bytes, size_t length) {
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  for (size_t done = 0; fd >= 0 && done < length;) {
    ssize_t n = pwrite(fd, bytes + done, length - done, done);
    if (n <= 0) return close(fd), -1;
    done += n;
  }
  if (fd >= 0 && fcntl(fd, F_ADD_SEALS, NEVER_WRITTEN)) return close(fd), -1;
  return fd;
}

static int put(const char *name, const char *text) {
  int fd = openat(config->proc, name, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t n = write(fd, text, strlen(text));
  close(fd);
  return n < 0 ? -1 : 0;
}

static int limit(int kind, uint64_t most) {
  struct rlimit r;
  getrlimit(kind, &r);
  r.rlim_cur = r.rlim_max = most < r.rlim_max ? most : r.rlim_max;
  return setrlimit(kind, &r);
}

/* Of a session's cell, set from outside: the bound is the soft one, so that the next cell may have more, and the filter
 * keeps the code from changing it. */
static int limit_memory(pid_t pid, const struct request *ask) {
  struct rlimit r;
  if (prlimit(pid, RLIMIT_AS, 0, &r)) return -1;
  uint64_t most = config->base_bytes + ((uint64_t)ask->memory_mb << 20);
  r.rlim_cur = most < r.rlim_max ? most : r.rlim_max;
  return prlimit(pid, RLIMIT_AS, &r, 0);
}

/* 0, or the number of the step that failed; the namespaces are there, everything else is done here. */
static int enter_namespaces(const struct request *ask) {
  char options[64];
  int run = ask->flags & PROCESSES;
  if (put("self/setgroups", "deny") || put("self/uid_map", config->uid_map) || put("self/gid_map", config->gid_map)) return 1;
  snprintf(options, sizeof options, "size=%um,nr_inodes=%u,mode=700", run ? config->tmp_mb_processes : config->tmp_mb,
           run ? 4096 : 512);
  if (mount("tmp", config->scratch, "tmpfs", MS_NOSUID | MS_NODEV | (run ? 0 : MS_NOEXEC), options)) return 2;
  return chdir(config->scratch) ? 2 : 0;
}

static int confine(const struct request *ask) {
  if (config->layers & LIMITS) {
    uint64_t cpu = ask->flags & SESSION ? 3601 : ask->timeout_ms / 1000 + 2;
    uint32_t tasks = ask->flags & PROCESSES ? ask->processes + 1 : config->threads;
    uint64_t memory = config->base_bytes + ((uint64_t)ask->memory_mb << 20);
    if ((ask->flags & SESSION ? limit_memory(0, ask) : limit(RLIMIT_AS, memory)) || limit(RLIMIT_CPU, cpu) ||
        limit(RLIMIT_FSIZE, config->file_bytes) || limit(RLIMIT_NOFILE, config->open_files) || limit(RLIMIT_CORE, 0) ||
        limit(RLIMIT_MEMLOCK, 0) || limit(RLIMIT_MSGQUEUE, 0) || limit(RLIMIT_NPROC, tasks))
      return 3;
  }
  if (config->uid > 0 && !(config->layers & NAMESPACES) &&
      (syscall(SYS_setresgid, config->uid, config->uid, config->uid) || syscall(SYS_setresuid, config->uid, config->uid, config->uid)))
    return 4;
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* again: a change of the user clears it */
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 5;
  if (config->layers & LANDLOCK && syscall(SYS_landlock_restrict_self, config->landlock, 0)) return 6;
  return 0;
}

/* The streams at 0, 1, 2, what else is handed over from 3 on, nothing above. */
static int streams(int input, int output, int error, int third) {
  if (input < 0) input = open("/dev/null", O_RDONLY);
  if (input < 0 || dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(error, 2) < 0 || dup2(third, 3) < 0) return 7;
  return 0;
}

/* In degraded mode a signal may go to this process alone: its pid is written into the filter. */
static int seal(const struct request *ask) {
  struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0}};
  if (config->layers & (NAMESPACES | LANDLOCK) && syscall(SYS_capset, &head, none)) return 9;
  if (!(config->layers & SECCOMP)) return 0;
  struct sock_fprog program = {config->filter_length, (struct sock_filter *)config->filter};
  if (ask->flags & PROCESSES)
    program = (struct sock_fprog){config->filter_processes_length, (struct sock_filter *)config->filter_processes};
  else if (ask->flags & SESSION)
    program = (struct sock_fprog){config->filter_session_length, (struct sock_filter *)config->filter_session};
  for (int i = 0; i < 4; i++)
    if (config->pid_at[i]) program.filter[config->pid_at[i]].k = getpid();
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? 10 : 0;
}

/* A fork without the C library's and Python's hooks, which cost as much as the fork; one thread is all there is. */
static pid_t fork_raw(unsigned long flags, int *pidfd) {
  if (tid_address) flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
  return syscall(SYS_clone, flags | SIGCHLD, 0, pidfd, tid_address, 0);
}

static int orphaned(void) {
  struct pollfd zygote = {config->self, POLLIN, 0};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return poll(&zygote, 1, 0) != 0;
}

static void fail_child(int lane, int step) {
  stages[lane] = 1000 * step + errno;
  _exit(1);
}

static int begin_session(struct call *c, int lane);

/* In the child: isolate, then hand over to Python. */
static int become(struct call *c, int lane) {
  int step = orphaned() ? 99 : 0;
  setsid();
  if (!step && config->layers & NAMESPACES) step = enter_namespaces(&c->ask);
  if (!step && c->ask.flags & SESSION) return begin_session(c, lane);
  if (!step) step = streams(c->input, c->out, c->err, c->code); /* before the limit of descriptors */
  if (!step) step = confine(&c->ask);
  if (!step && syscall(SYS_close_range, 4u, ~0u, 0)) step = 8;
  if (!step) step = seal(&c->ask);
  if (step) fail_child(lane, step);
  stages[lane] = 1;
  munmap((void *)stages, 4096);
  return 0;
}

static void release(struct call *c) {
  int fds[] = {c->code, c->input, c->out, c->err};
  for (int i = 0; i < 4; i++)
    if (fds[i] >= 0) close(fds[i]);
  c->code = c->input = c->out = c->err = -1;
}

static void forget(int fd) {
  epoll_ctl(epoll, EPOLL_CTL_DEL, fd, 0); /* first: children hold copies, and a closed one would go on reporting */
  close(fd);
}

static void watch(int fd, uint32_t events, uint64_t tag) {
  struct epoll_event e = {events, {.u64 = tag}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

static void refuse(struct call *c, int error) {
  say(FAILED, c->ask.id, 0)->error = error;
  release(c);
}

/* What a stream holds: the head goes into the reply, the true size beside it. */
static uint32_t collect(int fd, uint32_t most, uint64_t *total) {
  struct stat s;
  fstat(fd, &s);
  *total = s.st_size;
  uint32_t length = *total < most ? *total : most, done = 0;
  if (reserve(&out, length)) exit(1);
  while (done < length) {
    ssize_t n = pread(fd, out.at + out.used + done, length - done, done);
    if (n <= 0) break;
    done += n;
  }
  out.used += done;
  return done;
}

/* A session's cells may have kept it, and nobody would look at what they write there. */
static void close_for_good(int fd) {
  ftruncate(fd, 0);
  fcntl(fd, F_ADD_SEALS, NEVER_WRITTEN);
}

static struct reply *finish(struct call *c, int status, uint64_t cpu_us, uint64_t rss_kib) {
  size_t at = out.used;
  say(DONE, c->ask.id, 0);
  uint64_t totals[2];
  uint32_t lengths[2];
  lengths[0] = collect(c->out, c->ask.max_output, &totals[0]);
  lengths[1] = collect(c->err, c->ask.max_output, &totals[1]);
  struct reply *r = (struct reply *)(out.at + at); /* the buffer may have moved */
  r->bytes = out.used - at;
  r->status = status;
  r->timed_out = c->timed_out && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  r->wall_us = (now() - c->began) / 1000;
  r->cpu_us = cpu_us;
  r->rss_kib = rss_kib;
  r->out_len = lengths[0];
  r->err_len = lengths[1];
  r->out_total = totals[0];
  r->err_total = totals[1];
  r->out_high = totals[0] >> 32;
  r->err_high = totals[1] >> 32;
  if (c->session >= 0) close_for_good(c->out), close_for_good(c->err);
  release(c);
  c->busy = 0;
  return r;
}

static uint64_t cpu_us(const struct rusage *u) {
  return (u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1000000ull + u->ru_utime.tv_usec + u->ru_stime.tv_usec;
}

#include "cells.h"
#include "sessions.h"

/* Starts a call. 1 in the child. */
static int begin(struct call *waiting) {
  int lane = 0;
  while (lanes[lane].busy) lane++;
  struct call *c = &lanes[lane];
  *c = *waiting;
  int flags_of_streams = MFD_CLOEXEC | (c->ask.flags & SESSION ? MFD_ALLOW_SEALING : 0);
  c->out = memfd_create("stdout", flags_of_streams);
  c->err = memfd_create("stderr", flags_of_streams);
  c->pidfd = c->session = -1;
  c->timed_out = c->asleep = c->is_long = c->is_loud = 0;
  c->began = c->sampled = c->trimmed = now();
  c->deadline = c->began + c->ask.timeout_ms * 1000000ull;
  c->cpu = 0;
  if (c->out < 0 || c->err < 0) return refuse(c, errno), 0;
  if (c->ask.flags & SESSION && c->ask.parent) {
    if (resume(c)) return 0;
  } else {
    if (c->ask.flags & SESSION && open_session(c)) return refuse(c, errno), 0;
    unsigned long flags = CLONE_PIDFD;
    if (config->layers & NAMESPACES) flags |= CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC;
    stages[lane] = 0;
    c->pid = fork_raw(flags, &c->pidfd);
    if (c->pid == 0) return become(c, lane), 1;
    if (c->pid < 0) {
      int error = errno;
      if (c->session >= 0) end_session(c->session);
      return refuse(c, error), 0;
    }
    if (c->session >= 0) started_session(c);
    else watch(c->pidfd, EPOLLIN, lane);
  }
  c->busy = 1;
  close(c->code);
  if (c->input >= 0) close(c->input);
  c->code = c->input = -1;
  say(BEGUN, c->ask.id, 0);
  return 0;
}

static void ended(int lane) {
  struct call *c = &lanes[lane];
  struct rusage usage;
  int status;
  if (!c->busy || wait4(c->pid, &status, WNOHANG | __WALL, &usage) != c->pid) return;
  forget(c->pidfd);
  c->pidfd = -1;
  if (stages[lane] != 1 && !c->timed_out && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
    c->busy = 0;
    return refuse(c, stages[lane] ? stages[lane] : 1);
  }
  finish(c, status, cpu_us(&usage), usage.ru_maxrss);
}

static void stop(struct call *c) {
  if (c->session >= 0) stop_session(c);
  else syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, 0, 0);
}

/* R, S, …: what the kernel says the process does. */
static char doing(int pid) {
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

/* Who sleeps makes room for another; who has computed for long yields to those who have just come. */
static void sample(uint64_t at) {
  for (int i = 0; i < LANES; i++) {
    struct call *c = &lanes[i];
    if (!c->busy || at - c->sampled < SAMPLE_NS) continue;
    if (c->session >= 0 && c->pid == 0) c->pid = running_cell(c->session);
    if (c->pid <= 0) continue;
    struct timespec t;
    if (clock_gettime((~(clockid_t)c->pid) << 3 | 2, &t)) continue;
    uint64_t cpu = t.tv_sec * 1000000000ull + t.tv_nsec;
    char state = cpu - c->cpu < (at - c->sampled) / 20 ? doing(c->pid) : 'R';
    c->asleep = state == 'S' || state == 0;
    if (!c->is_long && cpu > LONG_NS) {
      c->is_long = 1;
      setpriority(PRIO_PROCESS, c->pid, LONG_NICE);
    }
    c->cpu = cpu;
    c->sampled = at;
  }
}

#define ANY_BYTES (1ll << 62)

/* Gives back the memory of what was written past the part that is told: the size still says how much it was. */
static void trim(uint64_t at) {
  for (int i = 0; i < LANES; i++) {
    struct call *c = &lanes[i];
    if (!c->busy || at - c->trimmed < TRIM_NS) continue;
    c->trimmed = at;
    c->is_loud = 0;
    uint64_t told = (c->ask.max_output + 4095ull) & ~4095ull;
    for (int k = 0; k < 2; k++) {
      struct stat s;
      int fd = k ? c->err : c->out;
      if (fstat(fd, &s) || s.st_blocks * 512ull <= told + SPARE_BYTES) continue;
      fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, told, ANY_BYTES); /* also beyond its end */
      c->is_loud = 1;
    }
  }
}

static int room(void) {
  int all = 0, fresh = 0, longer = 0;
  for (int i = 0; i < LANES; i++) {
    if (!lanes[i].busy) continue;
    all++;
    if (lanes[i].asleep) continue;
    if (lanes[i].is_long) longer++;
    else fresh++;
  }
  return all < LANES && fresh < config->runnable && longer < config->longest;
}

/* A call that has not begun. */
static void give_up(uint32_t id) {
  int kept = 0;
  for (int i = 0; i < pending_count; i++) {
    struct call *c = &pending[(pending_first + i) % PENDING];
    if (c->ask.id == id) refuse(c, ECANCELED);
    else pending[(pending_first + kept++) % PENDING] = *c;
  }
  pending_count = kept;
}

/* Takes one whole frame from the input; false when there is none. */
static int take(void) {
  struct request ask;
  if (in.used < sizeof ask.bytes) return 0;
  memcpy(&ask.bytes, in.at, sizeof ask.bytes);
  if (ask.bytes < sizeof ask || ask.bytes > 256u << 20) exit(2);
  if (in.used < ask.bytes) return reserve(&in, ask.bytes - in.used) ? exit(1), 0 : 0;
  memcpy(&ask, in.at, sizeof ask);
  if (ask.kind == RUN && pending_count == PENDING) return 0;
  const char *code = in.at + sizeof ask;
  if (ask.kind == RUN) {
    struct call *c = &pending[(pending_first + pending_count++) % PENDING];
    memset(c, 0, sizeof *c);
    c->ask = ask;
    c->out = c->err = -1;
    c->code = filled("code", code, ask.code_len);
    c->input = ask.stdin_len ? filled("stdin", code + ask.code_len, ask.stdin_len) : -1;
  } else if (ask.kind == STOP) {
    for (int i = 0; i < LANES; i++)
      if (lanes[i].busy && lanes[i].ask.id == ask.id) stop(&lanes[i]);
    give_up(ask.id);
  } else if (ask.kind == DROP) drop_state(ask.state);
  else if (ask.kind == PING) say(PONG, ask.id, 0);
  in.used -= ask.bytes;
  memmove(in.at, in.at + ask.bytes, in.used);
  if (in.used == 0 && in.size > 1 << 20) {
    munmap(in.at, in.size);
    in = (struct buffer){0};
  }
  return 1;
}

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

/* Nothing is left behind: every child is dead and reaped when the zygote ends. */
static int end(void) {
  for (int i = 0; i < LANES; i++)
    if (lanes[i].busy && lanes[i].session < 0) stop(&lanes[i]);
  for (int i = 0; i < LANES; i++)
    if (lanes[i].busy && lanes[i].session < 0) waitpid(lanes[i].pid, 0, __WALL);
  for (int i = 0; i < STATES; i++)
    if (sessions[i].used) end_session(i);
  return -1;
}

/* The descriptor with the code is 3 in a child of this. What Python needs to know of the call comes back in `told`. */
int zygote_serve(const struct config *given, struct request *told) {
  config = given;
  stages = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (prctl(PR_GET_TID_ADDRESS, &tid_address, 0, 0, 0)) tid_address = 0;
  epoll = epoll_create1(EPOLL_CLOEXEC);
  fcntl(config->in, F_SETFL, fcntl(config->in, F_GETFL) | O_NONBLOCK);
  fcntl(config->out, F_SETFL, fcntl(config->out, F_GETFL) | O_NONBLOCK);
  int taking = 1, blocked = 0;
  watch(config->in, EPOLLIN, 1000);
  zygote_kib = anonymous_kib("self");
  say(READY, config->layers, 0)->status = getpid();
  for (;;) {
    int full = !flush();
    if (full && !blocked) watch(config->out, EPOLLOUT, 1001);
    if (!full && blocked) epoll_ctl(epoll, EPOLL_CTL_DEL, config->out, 0);
    blocked = full;
    struct epoll_event events[64];
    int n = epoll_wait(epoll, events, 64, wait_ms(now()));
    for (int i = 0; i < n; i++) {
      uint64_t tag = events[i].data.u64;
      if (tag < LANES) ended(tag);
      else if (tag >= 2000) session_event(tag - 2000);
      else if (tag == 1000) {
        if (reserve(&in, 1 << 16)) return end();
        ssize_t got = read(config->in, in.at + in.used, in.size - in.used);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return end();
        if (got > 0) in.used += got;
      }
    }
    while (take()) continue;
    full = pending_count == PENDING || out.used > 64u << 20;
    if (full == taking) { /* back-pressure: what is not read stays with the sender */
      struct epoll_event e = {full ? 0 : EPOLLIN, {.u64 = 1000}};
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
    while (pending_count && room()) {
      struct call *c = &pending[pending_first];
      pending_first = (pending_first + 1) % PENDING;
      pending_count--;
      if (c->code < 0) refuse(c, ENOMEM);
      else if (begin(c)) {
        *told = c->ask;
        return 0;
      }
    }
  }
}
