// A disk that goes wrong while a program runs, or whose writes are recorded. Loaded by LD_PRELOAD;
// see ../src/baddisk.rs.
//
// BADDISK_PATH    only files whose path holds this text are meant.
// BADDISK_SWITCH  a file whose first word says what is wrong now; without the file, or empty: nothing.
//                   full       writes, new files and longer files fail with ENOSPC
//                   read-only  writes and opening for writing fail with EROFS
//                   eio-write  writes fail with EIO
//                   eio-sync   fsync and fdatasync fail with EIO, and nothing is synced
//                   lie        fsync and fdatasync say yes and do nothing
//                 Two numbers may follow: which call of this process is the first to meet it (1 when
//                 none is given), and how many calls do (all). When one did, SWITCH.met exists.
// BADDISK_TRACE   a file that gets every change, in order: a line `OP LENGTH OFFSET PATH`, then LENGTH
//                 bytes. OP is write, size (OFFSET is the new length), sync, create, mkdir, unlink,
//                 link or rename (the bytes are the new name).
//
// Recorded calls happen one at a time, so that the order of the record is the order on the disk.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum fault { NONE, FULL, READ_ONLY, EIO_WRITE, EIO_SYNC, LIE };

static const char *wanted, *switch_path;
static int trace_fd = -1;
static atomic_long calls;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void start(void) {
  wanted = getenv("BADDISK_PATH");
  switch_path = getenv("BADDISK_SWITCH");
  const char *trace = getenv("BADDISK_TRACE");
  // Around open(), which is wrapped below.
  if (trace != NULL && *trace != 0)
    trace_fd = (int)syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int is_wanted(const char *path) { return wanted != NULL && *wanted != 0 && strstr(path, wanted) != NULL; }

// The path behind a descriptor, if it is one that is meant.
static int is_wanted_fd(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  path[length < 0 ? 0 : length] = 0;
  return path[0] == '/' && is_wanted(path);
}

static enum fault named(const char *word) {
  static const char *const names[] = {"", "full", "read-only", "eio-write", "eio-sync", "lie"};
  for (int known = FULL; known <= LIE; known++)
    if (strcmp(word, names[known]) == 0) return (enum fault)known;
  return NONE;
}

// What this call meets, which is counted while anything is wrong.
static enum fault fault(int is_sync) {
  if (switch_path == NULL) return NONE;
  int saved = errno;
  char text[64] = "", word[16] = "";
  int fd = (int)syscall(SYS_openat, AT_FDCWD, switch_path, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    ssize_t length = syscall(SYS_read, fd, text, sizeof text - 1);
    text[length < 0 ? 0 : length] = 0;
    syscall(SYS_close, fd);
  }
  long first = 1, count = LONG_MAX;
  sscanf(text, "%15s %ld %ld", word, &first, &count);
  enum fault now = named(word);
  // Syncs do not fill a disk, and writes do not meet what is wrong with syncs.
  if (is_sync != (now == EIO_SYNC || now == LIE)) now = NONE;
  if (now != NONE) {
    long number = atomic_fetch_add(&calls, 1) + 1;
    if (number < first || number - first >= count) now = NONE;
  }
  if (now != NONE) {
    char met[PATH_MAX];
    snprintf(met, sizeof met, "%s.met", switch_path);
    fd = (int)syscall(SYS_openat, AT_FDCWD, met, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) syscall(SYS_close, fd);
  }
  errno = saved;
  return now;
}

// The error that a write meets now, or 0.
static int write_error(void) {
  switch (fault(0)) {
  case FULL: return ENOSPC;
  case READ_ONLY: return EROFS;
  case EIO_WRITE: return EIO;
  default: return 0;
  }
}

static void record(const char *op, long long offset, const char *path, const void *bytes, size_t length) {
  if (trace_fd < 0) return;
  char line[PATH_MAX + 64];
  int head = snprintf(line, sizeof line, "%s %zu %lld %s\n", op, length, offset, path);
  struct iovec pieces[2] = {{line, (size_t)head}, {(void *)bytes, length}};
  syscall(SYS_writev, trace_fd, pieces, 2);
}

// The C library's own function of that name, found once.
#define REAL(result, name, ...)                                                   \
  static result (*real)(__VA_ARGS__);                                             \
  if (real == NULL) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define FAIL(error)                                                               \
  do {                                                                            \
    errno = (error);                                                              \
    return -1;                                                                    \
  } while (0)

// Makes the call and records it, before anybody else's.
#define RECORDED(type, expression, condition, ...)                                \
  pthread_mutex_lock(&one_at_a_time);                                             \
  type done = (expression);                                                       \
  int saved = errno;                                                              \
  if (condition) record(__VA_ARGS__);                                             \
  pthread_mutex_unlock(&one_at_a_time);                                           \
  errno = saved;                                                                  \
  return done

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
  REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
  char path[PATH_MAX];
  if (!is_wanted_fd(fd, path)) return real(fd, bytes, length, offset);
  int error = write_error();
  if (error != 0) FAIL(error);
  RECORDED(ssize_t, real(fd, bytes, length, offset), done > 0, "write", offset, path, bytes, (size_t)done);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return pwrite64(fd, bytes, length, offset); }

ssize_t write(int fd, const void *bytes, size_t length) {
  REAL(ssize_t, write, int, const void *, size_t);
  char path[PATH_MAX];
  if (!is_wanted_fd(fd, path)) return real(fd, bytes, length);
  int error = write_error();
  if (error != 0) FAIL(error);
  // Where it went: behind the last byte, for files that are only added to.
  RECORDED(ssize_t, real(fd, bytes, length), done > 0, "write", (long long)lseek64(fd, 0, SEEK_CUR) - done, path, bytes,
           (size_t)done);
}

int ftruncate64(int fd, off64_t length) {
  REAL(int, ftruncate64, int, off64_t);
  char path[PATH_MAX];
  if (!is_wanted_fd(fd, path)) return real(fd, length);
  int error = write_error();
  if (error != 0) FAIL(error);
  RECORDED(int, real(fd, length), done == 0, "size", length, path, NULL, 0);
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

static int synced(int fd, int (*real)(int)) {
  char path[PATH_MAX];
  if (!is_wanted_fd(fd, path)) return real(fd);
  enum fault now = fault(1);
  if (now == EIO_SYNC) FAIL(EIO);
  if (now == LIE) return 0;
  RECORDED(int, real(fd), done == 0, "sync", 0, path, NULL, 0);
}

int fdatasync(int fd) {
  REAL(int, fdatasync, int);
  return synced(fd, real);
}

int fsync(int fd) {
  REAL(int, fsync, int);
  return synced(fd, real);
}

static int opened(int folder, const char *path, int flags, mode_t mode) {
  int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0;
  if (folder != AT_FDCWD || !writes || !is_wanted(path))
    return (int)syscall(SYS_openat, folder, path, flags, mode);
  struct stat known;
  int is_new = (flags & O_CREAT) != 0 && stat(path, &known) != 0;
  enum fault now = fault(0);
  if (now == READ_ONLY) FAIL(EROFS);
  if (is_new && now == FULL) FAIL(ENOSPC);
  RECORDED(int, (int)syscall(SYS_openat, folder, path, flags, mode), done >= 0 && is_new, "create", 0, path, NULL, 0);
}

#define MODE                                                                      \
  mode_t mode = 0;                                                                \
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {                                     \
    va_list more;                                                                 \
    va_start(more, flags);                                                        \
    mode = (mode_t)va_arg(more, int);                                             \
    va_end(more);                                                                 \
  }

int open64(const char *path, int flags, ...) {
  MODE;
  return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int open(const char *path, int flags, ...) {
  MODE;
  return opened(AT_FDCWD, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...) {
  MODE;
  return opened(folder, path, flags | O_LARGEFILE, mode);
}

int mkdir(const char *path, mode_t mode) {
  REAL(int, mkdir, const char *, mode_t);
  if (!is_wanted(path)) return real(path, mode);
  enum fault now = fault(0);
  if (now == FULL) FAIL(ENOSPC);
  if (now == READ_ONLY) FAIL(EROFS);
  RECORDED(int, real(path, mode), done == 0, "mkdir", 0, path, NULL, 0);
}

int unlink(const char *path) {
  REAL(int, unlink, const char *);
  if (!is_wanted(path)) return real(path);
  if (fault(0) == READ_ONLY) FAIL(EROFS);
  RECORDED(int, real(path), done == 0, "unlink", 0, path, NULL, 0);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
  REAL(int, linkat, int, const char *, int, const char *, int);
  if (!is_wanted(to)) return real(from_folder, from, to_folder, to, flags);
  enum fault now = fault(0);
  if (now == FULL) FAIL(ENOSPC);
  if (now == READ_ONLY) FAIL(EROFS);
  RECORDED(int, real(from_folder, from, to_folder, to, flags), done == 0, "link", 0, from, to, strlen(to));
}

int rename(const char *from, const char *to) {
  REAL(int, rename, const char *, const char *);
  if (!is_wanted(to)) return real(from, to);
  enum fault now = fault(0);
  if (now == FULL) FAIL(ENOSPC);
  if (now == READ_ONLY) FAIL(EROFS);
  RECORDED(int, real(from, to), done == 0, "rename", 0, from, to, strlen(to));
}
