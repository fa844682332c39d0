/*
 * The memory files of a call: its code, its standard input, its captured output. Part of shim.c.
 *
 * in   bytes from the pool; the bytes that the code writes
 * out  sealed files for the child; the reply that ends a call
 * Invariant: only the call writes to its streams. A reply has at most max_output bytes of each stream, and
 * the stream's true size.
 */

/* Time between two trims (2 ms); output past the captured part that a trim leaves in memory (1 MiB). */
enum { TRIM_NS = 2000000, SPARE_BYTES = 1 << 20 };
/* Seals of the memory files. Unlike F_SEAL_WRITE, F_SEAL_FUTURE_WRITE lets code map its input. */
enum { NEVER_WRITTEN = F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL };

/* Closes the memory files of a call. */
static void release(struct call *c) {
  int fds[] = {c->code, c->input, c->out, c->err};
  for (int i = 0; i < 4; i++)
    if (fds[i] >= 0) close(fds[i]);
  c->code = c->input = c->out = c->err = -1;
}

/* Answers a call that was not run. `error`: an errno, or 1000 * step + errno (see isolation.h). */
static void refuse(struct call *c, int error) {
  add_reply(FAILED, c->request.id, 0)->error = error;
  release(c);
}

/* Returns a memfd with these bytes, which the code can read but not change; -1 on an error. */
static int sealed_file(const char *name, const char *bytes, size_t length) {
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  for (size_t done = 0; fd >= 0 && done < length;) {
    ssize_t n = pwrite(fd, bytes + done, length - done, done);
    if (n <= 0) return close(fd), -1;
    done += n;
  }
  if (fd >= 0 && fcntl(fd, F_ADD_SEALS, NEVER_WRITTEN)) return close(fd), -1;
  return fd;
}

/*
 * Appends the first `most` bytes of a stream to the reply and returns their number; `total` is the stream's true size.
 */
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

/* Ends a stream that a session's cells may still hold open: nobody reads what they would write to it. */
static void empty_and_seal(int fd) {
  ftruncate(fd, 0);
  fcntl(fd, F_ADD_SEALS, NEVER_WRITTEN);
}

/* Answers a call that has ended, and frees its slot. */
static struct reply *answer(struct call *c, int status, uint64_t cpu_us, uint64_t rss_kib) {
  size_t at = out.used;
  add_reply(DONE, c->request.id, 0);
  uint64_t totals[2];
  uint32_t lengths[2];
  lengths[0] = collect(c->out, c->request.max_output, &totals[0]);
  lengths[1] = collect(c->err, c->request.max_output, &totals[1]);
  struct reply *r = (struct reply *)(out.at + at); /* The pointer is computed again, since the buffer may have moved. */
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
  if (c->session >= 0) empty_and_seal(c->out), empty_and_seal(c->err);
  release(c);
  c->busy = 0;
  return r;
}

#define ANY_BYTES (1ll << 62)

/*
 * Frees the memory of output past the captured part (the first max_output bytes). The file's size still tells how much
 * was written.
 */
static void trim(uint64_t at) {
  for (int i = 0; i < LANES; i++) {
    struct call *c = &lanes[i];
    if (!c->busy || at - c->trimmed < TRIM_NS) continue;
    c->trimmed = at;
    c->is_loud = 0;
    uint64_t captured = (c->request.max_output + 4095ull) & ~4095ull;
    for (int k = 0; k < 2; k++) {
      struct stat s;
      int fd = k ? c->err : c->out;
      if (fstat(fd, &s) || s.st_blocks * 512ull <= captured + SPARE_BYTES) continue;
      /* The hole may reach beyond the file's end, so the file's size need not be known. */
      fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, captured, ANY_BYTES);
      c->is_loud = 1;
    }
  }
}

