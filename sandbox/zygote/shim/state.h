/*
 * The data that the parts of shim.c share: configuration, frames, calls, sessions, states.
 *
 * Invariant: a slot of `lanes` is used by at most one call, a slot of `sessions` by at most one namespace, a slot of
 * `states` by at most one stopped process. zygote.py repeats the layouts of config and request, frames.ts and
 * fallback.py those of request and reply: change them together.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
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

enum { LANES = 60, PENDING = 64, STATES = 4352 }; /* Upper bounds: running calls, waiting calls, stopped processes. */
enum { NAMESPACES = 1, SECCOMP = 2, LANDLOCK = 4, LIMITS = 8 }; /* Isolation layers: flags of config.layers. */
/* Flags of request.flags. URGENT: the client runs nothing else, while another runs many calls. */
enum { CELL = 1, PROCESSES = 2, SESSION = 4, URGENT = 8 };
enum { RUN = 1, STOP = 2, DROP = 3, PING = 4 };                 /* Kinds of frame from the pool: request.kind. */
enum { READY = 1, BEGUN = 2, DONE = 3, FAILED = 4, PONG = 5 };  /* Kinds of frame to the pool: reply.kind. */
enum { TIMERS = 256 }; /* Upper bound on the timers and queued signals of a call. */
enum { PAUSED = 1, FILES = 2 };                                 /* Things that a cell left behind: flags of reply.kept. */
/* Tags of epoll events; a tag below LANES is the index of a call's slot. */
enum { IN_EVENT = 1000, OUT_EVENT = 1001, SESSION_EVENT = 2000 };

struct config { /* Settings of the zygote, filled by zygote.py before zygote_serve. */
  /* Descriptors: in, out, proc, self, landlock. uid: user of a call without namespaces, -1 for the zygote's own. runnable,
   * longest: bounds on calls, see admission.h. spare: padding. */
  int32_t in, out, proc, self, landlock, layers, uid, runnable, longest, spare;
  uint64_t base_bytes, file_bytes; /* Bytes: address space of the warm interpreter; largest file of a call. */
  uint32_t open_files, tmp_mb, tmp_mb_processes, threads;
  const struct sock_filter *filter, *filter_processes, *filter_session;
  /* pid_at: indexes of filter instructions that need the child's own pid. */
  uint32_t filter_length, filter_processes_length, filter_session_length, pid_at[4];
  char uid_map[32], gid_map[32], scratch[64];
};
struct request { /* Head of a frame from the pool; the code and the standard input follow it. */
  uint32_t bytes, kind, id, flags, timeout_ms, processes, memory_mb, max_output, state, parent, seed[2], code_len, stdin_len;
};
struct reply { /* Head of a frame to the pool; the captured output follows it. */
  uint32_t bytes, kind, id, status, timed_out, wall_us, cpu_us, rss_kib, out_len, err_len, out_total, err_total;
  uint32_t kept, kept_kib, held_kib, error, out_high, err_high; /* *_high: upper halves of the 64-bit totals */
};
struct call { /* Call of the pool, waiting in `pending` or running in `lanes`. */
  struct request request;
  /* session: index in `sessions`, or -1 for a call without a session. */
  int code, input, out, err, pidfd, pid, busy, timed_out, asleep, is_long, is_loud, session;
  /* Times in ns. cpu: CPU time so far. idled: when the call was last made SCHED_IDLE, or 0. */
  uint64_t began, deadline, sampled, trimmed, cpu, idled;
};
struct event { /* Report of a session's first process: the result of wait4, and the state of /tmp. */
  int32_t pid, status, files, tmp_kib;
  uint64_t cpu_us, rss_kib;
};
/* Session: a namespace with a trusted first process `init`. far: the namespace's ends of the two sockets. */
struct session {
  int used, init, pidfd, events, cells, lane, far[2];
  uint32_t tmp_kib;
  int cell, code;                /* Pid in the namespace and exit code of the running cell, as the cell claims them. */
  int over, stopped;             /* over: the running cell has ended. stopped: the zygote killed it. */
  struct event end;              /* Kernel's report of how the cell ended. */
};
struct state { /* Stopped process of a session's cell: the next cell forks from it. */
  uint32_t key;
  /* inner: the process's pid in the namespace. awake: 1 if continued, so that it forks. */
  int session, inner, pid, pidfd, awake, dropped;
  /* All anonymous memory of the process; the part of it that replaced pages of the zygote. */
  uint32_t anonymous_kib, changed_kib;
};
struct buffer { char *at; size_t size, used; };

static const struct config *config;
static struct call lanes[LANES], pending[PENDING];
static int pending_first, pending_count, epoll;
static struct session sessions[STATES];
static struct state states[STATES];
static int states_end; /* No slot of `states` is used from here on. */
static struct buffer in, out;
/* One word per slot, shared with the child until it is isolated: 1 once it is isolated, or 1000 * step + errno. */
static volatile uint32_t *stages;
static pid_t *tid_address;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t cpu_us(const struct rusage *u) {
  return (u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1000000ull + u->ru_utime.tv_usec + u->ru_stime.tv_usec;
}

static void watch(int fd, uint32_t events, uint64_t tag) {
  struct epoll_event e = {events, {.u64 = tag}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

/* Removes the descriptor from epoll before closing it: children hold copies, so epoll would keep reporting it. */
static void unwatch(int fd) {
  epoll_ctl(epoll, EPOLL_CTL_DEL, fd, 0);
  close(fd);
}
