static int begin_session(struct call *c, int lane, int events) { (void)c; (void)events; fail_child(lane, 90); return 0; }
static int open_session(struct call *c) { (void)c; errno = ENOSYS; return -1; }
static void started_session(struct call *c) { (void)c; }
static void end_session(int s) { (void)s; }
static void stop_session(struct call *c) { (void)c; }
static void session_event(int s) { (void)s; }
static void drop_state(uint32_t k) { (void)k; }
static int resume(struct call *c) { refuse(c, ENOSYS); return -1; }
