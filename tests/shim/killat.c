// Kills the process at its Nth call of one kind. Loaded by LD_PRELOAD; see ../src/killat.rs.
//
// KILL_AT      [before-|after-]CALL:N with CALL one of fdatasync, fsync, connect, send, recv.
//              Without a word in front: before, and for recv after.
// KILL_SIGNAL  kill (default) or stop: the process then waits for SIGCONT.
// KILL_PORT    only sockets whose peer has this port count; without it all do.
// KILL_LOG     a file that gets one line for each call: pid, call, its number, the file or peer.
//
// send and recv are all ways to write to and to read from a TCP socket. A recv counts when it
// brought bytes, so the tries of an event loop do not. Calls made around the C library, as rustix
// makes them, are not seen.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum call { FDATASYNC, FSYNC, CONNECT, SEND, RECV, CALLS };
static const char *const names[CALLS] = {"fdatasync", "fsync", "connect", "send", "recv"};

static atomic_long counts[CALLS];
static int wanted = -1; // the call to die at
static long wanted_count;
static int wanted_after;
static int wanted_signal = SIGKILL;
static int log_fd = -1;
static int wanted_port; // 0: any

static void complain(const char *at) {
  fprintf(stderr, "killat: KILL_AT=%s is not [before-|after-]CALL:N\n", at);
  _exit(99);
}

static void parse(const char *at) {
  const char *word = at;
  int side = 0; // none said
  if (strncmp(word, "before-", 7) == 0) {
    side = 1;
    word += 7;
  } else if (strncmp(word, "after-", 6) == 0) {
    side = 2;
    word += 6;
  }
  const char *colon = strchr(word, ':');
  if (colon == NULL || (wanted_count = atol(colon + 1)) < 1) complain(at);
  for (int call = 0; call < CALLS; call++) {
    size_t length = strlen(names[call]);
    if ((size_t)(colon - word) == length && strncmp(word, names[call], length) == 0) wanted = call;
  }
  if (wanted < 0 || (wanted == RECV && side == 1)) complain(at);
  wanted_after = side == 2 || wanted == RECV;
}

__attribute__((constructor)) static void start(void) {
  const char *at = getenv("KILL_AT");
  if (at != NULL && *at != 0) parse(at);
  const char *signal_name = getenv("KILL_SIGNAL");
  if (signal_name != NULL && strcmp(signal_name, "stop") == 0) wanted_signal = SIGSTOP;
  const char *port = getenv("KILL_PORT");
  if (port != NULL) wanted_port = atoi(port);
  const char *log = getenv("KILL_LOG");
  if (log != NULL && *log != 0) log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

// The file behind a descriptor, or the peer of a socket.
static void describe(enum call call, int fd, char *text, size_t size) {
  text[0] = 0;
  if (call == FDATASYNC || call == FSYNC) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, text, size - 1);
    text[length < 0 ? 0 : length] = 0;
    return;
  }
  struct sockaddr_in peer;
  socklen_t length = sizeof peer;
  if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && peer.sin_family == AF_INET)
    snprintf(text, size, "port=%d", ntohs(peer.sin_port));
}

static long count(enum call call, int fd) {
  long number = atomic_fetch_add(&counts[call], 1) + 1;
  if (log_fd >= 0) {
    char what[512], line[640];
    describe(call, fd, what, sizeof what);
    int length = snprintf(line, sizeof line, "%d %s %ld %s\n", (int)getpid(), names[call], number, what);
    // Around write(), which is wrapped below.
    syscall(SYS_write, log_fd, line, length);
  }
  return number;
}

static void die_if(enum call call, long number, int after) {
  // To this thread: a signal to the process may be taken by another one, and this one would go on.
  if (wanted == (int)call && wanted_count == number && wanted_after == after)
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), wanted_signal);
}

static int is_tcp(int fd) {
  int saved = errno, domain = 0, type = 0;
  socklen_t length = sizeof domain;
  int known = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0;
  length = sizeof type;
  known = known && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0;
  errno = saved;
  return known && (domain == AF_INET || domain == AF_INET6) && type == SOCK_STREAM;
}

static int has_port(const struct sockaddr *peer) {
  if (wanted_port == 0) return 1;
  return peer->sa_family == AF_INET && ntohs(((const struct sockaddr_in *)peer)->sin_port) == wanted_port;
}

// A TCP socket, and one that counts.
static int counts_for(int fd) {
  if (!is_tcp(fd)) return 0;
  if (wanted_port == 0) return 1;
  struct sockaddr_storage peer;
  socklen_t length = sizeof peer;
  int saved = errno;
  int known = getpeername(fd, (struct sockaddr *)&peer, &length) == 0;
  errno = saved;
  return known && has_port((struct sockaddr *)&peer);
}

// The C library's own function of that name, found once.
#define REAL(result, name, ...)                                                   \
  static result (*real)(__VA_ARGS__);                                             \
  if (real == NULL) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

// Counted before the call; dies before or after it.
#define AROUND(call, fd, expression)                                              \
  long number = count(call, fd);                                                  \
  die_if(call, number, 0);                                                        \
  long done = (expression);                                                       \
  int saved = errno;                                                              \
  die_if(call, number, 1);                                                        \
  errno = saved;                                                                  \
  return done

#define SENDING(fd, expression)                                                   \
  if (!counts_for(fd)) return (expression);                                          \
  AROUND(SEND, fd, expression)

// Counted after a call that brought bytes.
#define RECEIVING(fd, expression)                                                 \
  if (!counts_for(fd)) return (expression);                                          \
  ssize_t got = (expression);                                                     \
  int saved = errno;                                                              \
  if (got > 0) die_if(RECV, count(RECV, fd), 1);                                  \
  errno = saved;                                                                  \
  return got

int fdatasync(int fd) {
  REAL(int, fdatasync, int);
  AROUND(FDATASYNC, fd, real(fd));
}

int fsync(int fd) {
  REAL(int, fsync, int);
  AROUND(FSYNC, fd, real(fd));
}

int connect(int fd, const struct sockaddr *address, socklen_t length) {
  REAL(int, connect, int, const struct sockaddr *, socklen_t);
  if (!is_tcp(fd) || !has_port(address)) return real(fd, address, length);
  AROUND(CONNECT, fd, real(fd, address, length));
}

ssize_t send(int fd, const void *bytes, size_t length, int flags) {
  REAL(ssize_t, send, int, const void *, size_t, int);
  SENDING(fd, real(fd, bytes, length, flags));
}

ssize_t sendto(int fd, const void *bytes, size_t length, int flags, const struct sockaddr *to,
               socklen_t to_length) {
  REAL(ssize_t, sendto, int, const void *, size_t, int, const struct sockaddr *, socklen_t);
  SENDING(fd, real(fd, bytes, length, flags, to, to_length));
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  REAL(ssize_t, sendmsg, int, const struct msghdr *, int);
  SENDING(fd, real(fd, message, flags));
}

ssize_t write(int fd, const void *bytes, size_t length) {
  REAL(ssize_t, write, int, const void *, size_t);
  SENDING(fd, real(fd, bytes, length));
}

ssize_t writev(int fd, const struct iovec *pieces, int number_of_pieces) {
  REAL(ssize_t, writev, int, const struct iovec *, int);
  SENDING(fd, real(fd, pieces, number_of_pieces));
}

ssize_t recv(int fd, void *bytes, size_t length, int flags) {
  REAL(ssize_t, recv, int, void *, size_t, int);
  RECEIVING(fd, real(fd, bytes, length, flags));
}

ssize_t recvfrom(int fd, void *bytes, size_t length, int flags, struct sockaddr *from,
                 socklen_t *from_length) {
  REAL(ssize_t, recvfrom, int, void *, size_t, int, struct sockaddr *, socklen_t *);
  RECEIVING(fd, real(fd, bytes, length, flags, from, from_length));
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
  REAL(ssize_t, recvmsg, int, struct msghdr *, int);
  RECEIVING(fd, real(fd, message, flags));
}

ssize_t read(int fd, void *bytes, size_t length) {
  REAL(ssize_t, read, int, void *, size_t);
  RECEIVING(fd, real(fd, bytes, length));
}

ssize_t readv(int fd, const struct iovec *pieces, int number_of_pieces) {
  REAL(ssize_t, readv, int, const struct iovec *, int);
  RECEIVING(fd, real(fd, pieces, number_of_pieces));
}
