// Loaded into sdp-train (LD_PRELOAD), starts it many times and LibTorch once: the program is loaded, and then
// forks a process for every command that it reads from standard input, which runs the program's own main; so
// do the copies that its launcher starts. Not on a GPU: CUDA does not outlive a fork. Processes that get
// signals are started as users do: forked copies share the descriptor that a signal wakes.
//
// A command is a line with the number of its arguments, and then, each ended by a null byte, the files for
// standard output and standard error and the arguments. The answer is the process's status (waitpid) as a
// line.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int Main(int, char**, char**);
static Main* program;

// Without the destructors of LibTorch's static variables, which take longer than many a command.
static void leave(int code) {
  fflush(NULL);
  _exit(code);
}

static void redirect(const char* path, int descriptor) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0 || dup2(file, descriptor) < 0) abort();
  close(file);
}

static char* read_text(void) {
  char* text = NULL;
  size_t size = 0;
  if (getdelim(&text, &size, '\0', stdin) < 0) exit(0);
  return text;
}

static int serve(int argc, char** argv, char** environment) {
  (void)argc, (void)environment;
  unsetenv("LD_PRELOAD");  // not for programs that this one starts
  int count;
  while (scanf("%d", &count) == 1 && getchar() == '\n') {
    char* files[2] = {read_text(), read_text()};
    char** arguments = calloc((size_t)count + 2, sizeof(char*));
    arguments[0] = argv[0];
    for (int i = 1; i <= count; ++i)
      arguments[i] = read_text();
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      redirect(files[0], STDOUT_FILENO);
      redirect(files[1], STDERR_FILENO);
      redirect("/dev/null", STDIN_FILENO);
      leave(program(count + 1, arguments, environ));
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) abort();
    printf("%d\n", status);
    fflush(stdout);
  }
  return 0;
}

typedef int StartMain(Main*, int, char**, void (*)(void), void (*)(void), void (*)(void), void*);

int __libc_start_main(Main* main, int argc, char** argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void* stack_end) {
  program = main;
  StartMain* const start = (StartMain*)dlsym(RTLD_NEXT, "__libc_start_main");
  return start(serve, argc, argv, init, fini, rtld_fini, stack_end);
}

// As exec does. Descriptors stay open: the program's static variables hold some of them.
static void reset_signals(void) {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN) signal(number, SIG_DFL);
  }
}

int execve(const char* path, char* const arguments[], char* const environment[]) {
  const char* device = getenv("SDP_TEST_DEVICE");
  if (!strcmp(path, "/proc/self/exe") && (!device || strcmp(device, "cuda"))) {
    reset_signals();
    environ = (char**)environment;
    int count = 0;
    while (arguments[count])
      ++count;
    leave(program(count, (char**)arguments, environ));
  }
  return (int)syscall(SYS_execve, path, arguments, environment);
}
