/*
 * Allocator of Python's arenas, which lays them side by side in large pages. Part of shim.c.
 *
 * in   Python's requests for arenas (PyObject_SetArenaAllocator)      out  memory
 * Invariant: until zygote_arenas_end arenas lie in regions of 64 MiB that start and end at a large page (2 MiB), unless
 * the kernel has no such region: a fork copies a large page, and an exit frees it, as fast as a small one.
 * zygote_arenas_end returns the unused rest of the last region to the kernel. Later arenas are mappings of their own,
 * so that a limit on address space counts them.
 */

enum { LARGE_PAGE = 2 << 20, ARENAS = 64 << 20 };

static char *arena, *arenas_end;
static int arenas_closed;

static char *to_large_page(char *at) { return (char *)(((uintptr_t)at + LARGE_PAGE - 1) & -(uintptr_t)LARGE_PAGE); }

static void *fresh_memory(size_t size, int flags) {
  void *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return at == MAP_FAILED ? 0 : at;
}

static void open_arenas(void) {
  char *at = fresh_memory(ARENAS + LARGE_PAGE, MAP_NORESERVE);
  if (!at) return;
  arena = to_large_page(at);
  arenas_end = arena + ARENAS;
  if (arena > at) munmap(at, arena - at);
  munmap(arenas_end, at + LARGE_PAGE - arena);
}

void *zygote_arena(void *context, size_t size) {
  (void)context;
  if (!arenas_closed && arenas_end - arena < (ptrdiff_t)size) open_arenas();
  if (arenas_closed || arenas_end - arena < (ptrdiff_t)size) return fresh_memory(size, 0);
  arena += size;
  return arena - size;
}

void zygote_arena_free(void *context, void *at, size_t size) {
  (void)context;
  munmap(at, size);
}

/* Returns the unused part of the last region to the kernel. Called once the interpreter is warm. */
void zygote_arenas_end(void) {
  char *used = to_large_page(arena);
  if (arenas_end > used) munmap(used, arenas_end - used);
  arenas_closed = 1;
}
