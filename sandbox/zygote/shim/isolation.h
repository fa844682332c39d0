/*
 * Isolation of one child: namespaces, limits, user, Landlock, descriptors, seccomp. Part of shim.c.
 *
 * in   a forked child of the zygote, its request
 * out  a process that may run untrusted code; or an exit, with stages[lane] = 1000 * step + errno
 * Invariant: code runs only after every step has succeeded. If a step fails, the zygote refuses the call.
 * Steps: 1 user mapping, 2 /tmp, 3 limits, 4 user, 5 no new privileges, 6 Landlock, 7 streams, 8 other descriptors, 9
 * capabilities, 10 seccomp, 11 fork of a session's first process, 12 a session's channel, 99 the zygote has died.
 */

static int write_proc(const char *name, const char *text) {
  int fd = openat(config->proc, name, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t n = write(fd, text, strlen(text));
  close(fd);
  return n < 0 ? -1 : 0;
}

/* Lowers a resource's soft and hard limit to `most`, or to the present hard limit if that is lower. */
static int limit(int kind, uint64_t most) {
  struct rlimit r;
  getrlimit(kind, &r);
  r.rlim_cur = r.rlim_max = most < r.rlim_max ? most : r.rlim_max;
  return setrlimit(kind, &r);
}

/*
 * Limits the memory of a session's cell (pid 0: of this process). Only the soft limit is set, so that the next cell may
 * have more; the seccomp filter keeps the code from raising it.
 */
static int limit_memory(pid_t pid, const struct request *request) {
  struct rlimit r;
  if (prlimit(pid, RLIMIT_AS, 0, &r)) return -1;
  uint64_t most = config->base_bytes + ((uint64_t)request->memory_mb << 20);
  r.rlim_cur = most < r.rlim_max ? most : r.rlim_max;
  return prlimit(pid, RLIMIT_AS, &r, 0);
}

/*
 * Maps the user and mounts a private /tmp, in the namespaces that clone made. Returns 0, or the number of the failed
 * step.
 */
static int enter_namespaces(const struct request *request) {
  char options[64];
  int run = request->flags & PROCESSES;
  if (write_proc("self/setgroups", "deny") || write_proc("self/uid_map", config->uid_map) || write_proc("self/gid_map", config->gid_map)) return 1;
  snprintf(options, sizeof options, "size=%um,nr_inodes=%u,mode=700", run ? config->tmp_mb_processes : config->tmp_mb,
           run ? 4096 : 512);
  if (mount("tmp", config->scratch, "tmpfs", MS_NOSUID | MS_NODEV | (run ? 0 : MS_NOEXEC), options)) return 2;
  return chdir(config->scratch) ? 2 : 0;
}

static int confine(const struct request *request) {
  if (config->layers & LIMITS) {
    uint64_t cpu = request->flags & SESSION ? 3601 : request->timeout_ms / 1000 + 2;
    uint32_t tasks = request->flags & PROCESSES ? request->processes + 1 : config->threads;
    uint64_t memory = config->base_bytes + ((uint64_t)request->memory_mb << 20);
    if ((request->flags & SESSION ? limit_memory(0, request) : limit(RLIMIT_AS, memory)) || limit(RLIMIT_CPU, cpu) ||
        limit(RLIMIT_FSIZE, config->file_bytes) || limit(RLIMIT_NOFILE, config->open_files) || limit(RLIMIT_CORE, 0) ||
        limit(RLIMIT_MEMLOCK, 0) || limit(RLIMIT_MSGQUEUE, 0) || limit(RLIMIT_NPROC, tasks))
      return 3;
    /* Timers of all calls count towards one limit of the user; a bound per call keeps one call from using it up. */
    if (config->layers & NAMESPACES && limit(RLIMIT_SIGPENDING, TIMERS)) return 3;
  }
  if (config->uid > 0 && !(config->layers & NAMESPACES) &&
      (syscall(SYS_setresgid, config->uid, config->uid, config->uid) || syscall(SYS_setresuid, config->uid, config->uid, config->uid)))
    return 4;
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* Sets the death signal again, since a change of the user clears it. */
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 5;
  if (config->layers & LANDLOCK && syscall(SYS_landlock_restrict_self, config->landlock, 0)) return 6;
  return 0;
}

/*
 * Puts the streams at descriptors 0, 1 and 2 and the code at 3; the caller closes the other descriptors. Returns 0, or
 * the number of the failed step.
 */
static int set_streams(int input, int output, int error, int third) {
  if (input < 0) input = open("/dev/null", O_RDONLY);
  if (input < 0 || dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(error, 2) < 0 || dup2(third, 3) < 0) return 7;
  return 0;
}

/*
 * Drops capabilities and installs the seccomp filter. The filter of the level `degraded` (a sandbox without namespaces)
 * allows signals to this process alone, so its pid is written into the filter. Returns 0, or the number of the failed
 * step.
 */
static int install_filter(const struct request *request) {
  struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0}};
  if (config->layers & (NAMESPACES | LANDLOCK) && syscall(SYS_capset, &head, none)) return 9;
  if (!(config->layers & SECCOMP)) return 0;
  struct sock_fprog program = {config->filter_length, (struct sock_filter *)config->filter};
  if (request->flags & PROCESSES)
    program = (struct sock_fprog){config->filter_processes_length, (struct sock_filter *)config->filter_processes};
  else if (request->flags & SESSION)
    program = (struct sock_fprog){config->filter_session_length, (struct sock_filter *)config->filter_session};
  for (int i = 0; i < 4; i++)
    if (config->pid_at[i]) program.filter[config->pid_at[i]].k = getpid();
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? 10 : 0;
}

/* Forks without the hooks of the C library and of Python, which cost as much as the fork. The zygote has one thread. */
static pid_t fork_raw(unsigned long flags, int *pidfd) {
  if (tid_address) flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
#if defined __x86_64__
  return syscall(SYS_clone, flags | SIGCHLD, 0, pidfd, tid_address, 0);
#else /* the order of the last two arguments is another */
  return syscall(SYS_clone, flags | SIGCHLD, 0, pidfd, 0, tid_address);
#endif
}

/* Returns 1 if the zygote has died. From here on the zygote's death kills this process. */
static int orphaned(void) {
  struct pollfd zygote = {config->self, POLLIN, 0};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return poll(&zygote, 1, 0) != 0;
}

static void fail_isolation(int lane, int step) {
  stages[lane] = 1000 * step + errno;
  _exit(1);
}

static int begin_session(struct call *c, int lane);

/* Runs in the child: takes every step of its isolation, then returns to Python. A failed step ends the child. */
static int isolate(struct call *c, int lane) {
  int step = orphaned() ? 99 : 0;
  /* Makes a process group, not a process session: with sched_autogroup each session gets an equal share of the core,
     whatever the nice values in it. */
  setpgid(0, 0);
  if (!step && config->layers & NAMESPACES) step = enter_namespaces(&c->request);
  if (!step && c->request.flags & SESSION) return begin_session(c, lane);
  /* The streams are set first, since confine limits the number of descriptors. */
  if (!step) step = set_streams(c->input, c->out, c->err, c->code);
  if (!step) step = confine(&c->request);
  if (!step && syscall(SYS_close_range, 4u, ~0u, 0)) step = 8;
  if (!step) step = install_filter(&c->request);
  if (step) fail_isolation(lane, step);
  stages[lane] = 1;
  munmap((void *)stages, 4096);
  return 0;
}

