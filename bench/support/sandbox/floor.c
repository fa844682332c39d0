/*
 * Lower bound on the cost of a sandbox call: how often one core starts and reaps a process.
 *
 * floor SECONDS CORE fork             fork, _exit(0), wait
 * floor SECONDS CORE PROGRAM ARG...   posix_spawn with its output to /dev/null, wait
 * CORE -1 lets the kernel choose the core. Prints the number of processes, the seconds that they
 * took, and the seconds of CPU time, of this process and of them. Exits 1 if one of them fails.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu(int who) {
  struct rusage use;
  getrusage(who, &use);
  return use.ru_utime.tv_sec + use.ru_stime.tv_sec + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  double seconds = atof(argv[1]);
  if (atoi(argv[2]) >= 0) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(atoi(argv[2]), &core);
    sched_setaffinity(0, sizeof core, &core);
  }
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
  long count = 0;
  double start = now();
  while (now() - start < seconds) {
    pid_t pid;
    int status;
    if (strcmp(argv[3], "fork") == 0) {
      pid = fork();
      if (pid == 0) _exit(0);
    } else if (posix_spawnp(&pid, argv[3], &quiet, 0, argv + 3, environ) != 0) {
      return 1;
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) return 1;
    count++;
  }
  printf("%ld %f %f\n", count, now() - start, cpu(RUSAGE_SELF) + cpu(RUSAGE_CHILDREN));
  return 0;
}
