/*
 * Reply frames and the buffers that all frames pass through. Part of shim.c.
 *
 * in   replies      out  bytes on config->out, as far as the pool reads them
 * Invariant: the first number of a frame is its length in bytes, head included. The buffers are mappings that a fork
 * leaves out, so that no child sees a byte of another call.
 */

/*
 * Makes room for `more` bytes; returns -1 if there is no memory. Grows the buffer by a new mapping: memory from malloc
 * could not be kept out of the children.
 */
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

/* Appends the head of a reply that `more` bytes will follow. */
static struct reply *add_reply(uint32_t kind, uint32_t id, size_t more) {
  if (reserve(&out, sizeof(struct reply) + more)) exit(1);
  struct reply *r = (struct reply *)(out.at + out.used);
  memset(r, 0, sizeof *r);
  r->bytes = sizeof *r + more;
  r->kind = kind;
  r->id = id;
  out.used += sizeof *r;
  return r;
}

/* Writes as many bytes as the pool reads now. Returns 1 when none are left. */
static int flush(void) {
  size_t done = 0;
  while (done < out.used) {
    ssize_t n = write(config->out, out.at + done, out.used - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) exit(0); /* The pool has closed its end, so the zygote ends. */
    if (n < 0) break;
    done += n;
  }
  memmove(out.at, out.at + done, out.used - done);
  out.used -= done;
  return out.used == 0;
}
