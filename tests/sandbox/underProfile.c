/*
 * Runs a command as a container would: under a seccomp profile, without capabilities, as another user.
 *
 * in   argv: uid, `default` (Docker's: no new namespaces, no mounts) or `shipped`, the command     out  the command, exec'd
 * profile.h is made by the test from sandbox/seccomp.json: `NAME(x)` for each system call of it that these headers know.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int allowed[] = {
#define NAME(x) SYS_##x,
#include "profile.h"
};
static const int of_namespaces[] = {SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_mount_setattr};
static struct sock_filter code[4096];
static int length;

static void emit(unsigned op, unsigned char jt, unsigned char jf, unsigned k) {
  code[length++] = (struct sock_filter){op, jt, jf, k};
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  int shipped = !strcmp(argv[2], "shipped");
  emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
  if (!shipped) {
    for (unsigned i = 0; i < sizeof of_namespaces / sizeof *of_namespaces; i++) {
      emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, of_namespaces[i]);
      emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM);
    }
    emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_clone3);
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS);
    emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_clone);
    emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, args[0]));
    emit(BPF_JMP | BPF_JSET | BPF_K, 0, 1, 0x7E020000);
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM);
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
  }
  for (unsigned i = 0; i < sizeof allowed / sizeof *allowed; i++) {
    emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, allowed[i]);
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
  }
  emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM);
  int uid = atoi(argv[1]);
  if (setgroups(0, 0) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid)) return perror("user"), 2;
  struct sock_fprog program = {length, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return perror("seccomp"), 2;
  execv(argv[3], argv + 3);
  return perror(argv[3]), 2;
}
