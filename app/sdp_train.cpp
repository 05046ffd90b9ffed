#include "command_line.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  return sdp::run_command_line(arguments, arguments);
}
