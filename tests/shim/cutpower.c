// Cuts the power of the file system at a folder: nothing is written to its disk any more.
//
//   cutpower FOLDER flush|lose     with the journal's waiting part written first, or lost

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

// From the kernel's uapi: one number for ext4, XFS, f2fs and others.
#define FS_IOC_SHUTDOWN _IOR('X', 125, uint32_t)
#define FLAG_LOG_FLUSH 1
#define FLAG_NO_LOG_FLUSH 2

int main(int count, char **arguments) {
  if (count != 3) return 2;
  int folder = open(arguments[1], O_RDONLY | O_DIRECTORY);
  uint32_t how = strcmp(arguments[2], "flush") == 0 ? FLAG_LOG_FLUSH : FLAG_NO_LOG_FLUSH;
  if (folder < 0 || ioctl(folder, FS_IOC_SHUTDOWN, &how) != 0) {
    perror(arguments[1]);
    return 1;
  }
  return 0;
}
