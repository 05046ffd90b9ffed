#include "python/python_network.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "layers/branch.h"
#include "layers/conv.h"
#include "layers/model.h"
#include "layers/tensors.h"
#include "spec/error.h"

namespace sdp {
namespace {

namespace py = pybind11;

/// A Python object that can be copied and destroyed without the lock.
using Held = std::shared_ptr<const py::object>;

Held hold(py::object object) {
  return {new py::object(std::move(object)), [](const py::object* held) {
            const py::gil_scoped_acquire lock;
            delete held;
          }};
}

/// The exception as the error that a user sees: a NetworkError says what to change; others are shown with
/// their traceback.
[[noreturn]] void throw_error(const py::error_already_set& error) {
  const py::object kind = py::module_::import("sdp_train.network").attr("NetworkError");
  if (error.matches(kind)) throw UsageError(py::str(error.value()).cast<std::string>());
  if (error.matches(py::module_::import("torch").attr("OutOfMemoryError")))
    throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, py::str(error.value()).cast<std::string>());
  const py::object lines =
      py::module_::import("traceback").attr("format_exception")(error.type(), error.value(), error.trace());
  throw Error(ExitCode::kInternal,
              "an exception in Python\n" + py::str("").attr("join")(lines).cast<std::string>());
}

/// f() with the lock.
template <class Function>
auto in_python(const Function& f) {
  const py::gil_scoped_acquire lock;
  try {
    return f();
  } catch (const py::error_already_set& error) {
    throw_error(error);
  }
}

at::Tensor tensor_of(const py::object& result, const std::string& what) {
  if (!THPVariable_Check(result.ptr()))
    throw UsageError(fmt::format("{} returns {}, expected one tensor", what,
                                 py::str(py::type::of(result).attr("__name__")).cast<std::string>()));
  return result.cast<at::Tensor>();
}

/// Names of parameters and buffers of a branch, or outside of all.
struct Names {
  std::vector<std::string> parameters, buffers;
};

struct NetworkNames {
  std::map<std::optional<int>, Names> of;  ///< by branch
  int branches = 0;
  std::vector<std::string> head;  ///< weight and bias, if the head is one linear layer
};

/// Seeds what Python's modules draw with next. `seed` is that of the pass, and `place` one of the model, so
/// that the numbers do not depend on which branches a worker has.
void seed_default_generator(std::optional<uint64_t> seed, uint64_t place, at::Device device) {
  if (!seed || device.is_meta()) return;
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;  // of splitmix64 (Steele et al. 2014)
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::scoped_lock lock(generator.mutex());
  generator.set_current_seed(*seed + kMultiplier * (place + 1));
}

class PythonModel;

/// A forward pass, which Python's network goes through (sdp_train.network.Pass).
class Pass {
 public:
  Pass(PythonModel& model, const ForwardMode& mode, at::Device device)
      : model_(model), mode_(mode), device_(device) {
    if (mode.generator) seed_ = mode.generator->current_seed();
    seed(0);
  }

  py::object branch(int branch, const at::Tensor& x, const py::object& f);
  void end(int branch);
  bool changes_output() const;
  /// Throws the error of this program that went through Python, if there is one.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  /// f() without the lock. An error would lose its type in Python.
  template <class Function>
  auto without_lock(const Function& f) {
    const py::gil_scoped_release released;
    try {
      return f();
    } catch (...) {
      error_ = std::current_exception();
      throw;
    }
  }

  void seed(int place) const { seed_default_generator(seed_, static_cast<uint64_t>(place), device_); }

  PythonModel& model_;
  const ForwardMode& mode_;
  const at::Device device_;
  std::optional<uint64_t> seed_;  ///< of the pass
  std::exception_ptr error_;
};

class PythonModel : public Model {
 public:
  PythonModel(Held instance, std::shared_ptr<const NetworkNames> names, const DropRates& drop)
      : instance_(std::move(instance)), names_(std::move(names)), drop_(drop) {}

  void bind_shared(const TensorSource& source) override {
    bind(std::nullopt, source);
    const std::vector<std::string>& head = names_->head;
    if (!head.empty()) head_.weight = source.parameter(head[0]);
    if (head.size() > 1) head_.bias = source.parameter(head[1]);
  }
  void bind_branch(int branch, const TensorSource& source) override {
    bind(branch, source);
    bound_.insert(branch);
  }
  void unbind_branch(int branch) override {
    bound_.erase(branch);
    in_python([&] { instance_->attr("unbind")(names_->of.at(branch).parameters); });
  }
  Head head() const override { return head_; }

  at::Tensor features(const at::Tensor& input, const ForwardMode& mode) override {
    Pass pass(*this, mode, input.device());
    const bool is_map = input.dim() == 4;
    const at::Tensor x = is_map ? input.contiguous(map_format(input.scalar_type(), input.is_cuda())) : input;
    try {
      return in_python([&] {
        return tensor_of(instance_->attr("run")(x, &pass, mode.training, mode.generator.has_value(),
                                                mode.batch_norm_momentum),
                         "the network");
      });
    } catch (const std::exception&) {
      pass.rethrow();
      throw;
    }
  }

 private:
  friend class Pass;

  void bind(std::optional<int> branch, const TensorSource& source) {
    const Names& names = names_->of.at(branch);
    in_python([&] {
      py::dict parameters, buffers;
      for (const std::string& name : names.parameters)
        parameters[py::str(name)] = source.parameter(name);
      for (const std::string& name : names.buffers)
        buffers[py::str(name)] = source.buffer(name);
      instance_->attr("bind")(parameters, buffers);
    });
  }

  const Held instance_;
  const std::shared_ptr<const NetworkNames> names_;
  const DropRates drop_;
  std::set<int> bound_;  ///< branches
  Head head_;
};

py::object Pass::branch(int branch, const at::Tensor& x, const py::object& f) {
  without_lock([&] {
    if (mode_.before_branch) mode_.before_branch(branch);
  });
  if (!model_.bound_.contains(branch)) return py::none();
  const Recipe recipe = [f = hold(f), instance = model_.instance_, branch, device = device_, seed = seed_](
                            const at::Tensor& input, bool again) {
    seed_default_generator(seed, static_cast<uint64_t>(2 * branch + 1), device);
    return in_python([&] {
      const py::object result = again ? instance->attr("again")(*f, input) : (*f)(input);
      return tensor_of(result, fmt::format("branch {}", branch));
    });
  };
  return py::cast(without_lock([&] {
    at::Tensor out =
        drop_randomly(run_branch(recipe, x, mode_), model_.drop_, branch, model_.names_->branches, mode_);
    if (const double scale = branch_scale(mode_, branch); scale != 1) out = out * scale;
    return out;
  }));
}

void Pass::end(int branch) {
  without_lock([&] {
    if (mode_.after_branch) mode_.after_branch(branch);
    seed(2 * branch + 2);
  });
}

bool Pass::changes_output() const {
  return !mode_.branch_scales.empty() || model_.drop_.dropout > 0 || model_.drop_.stochastic_depth > 0;
}

class PythonInitializer : public OwnInitializer {
 public:
  explicit PythonInitializer(Held structure) : structure_(std::move(structure)) {}
  at::Tensor draw(const ParameterLayout& parameter, uint64_t seed) const override {
    return in_python(
        [&] { return tensor_of(structure_->attr("draw")(parameter.name, seed), parameter.name); });
  }

 private:
  const Held structure_;
};

ParameterRole role_named(const std::string& name) {
  return name == "norm"   ? ParameterRole::kNorm
         : name == "bias" ? ParameterRole::kBias
                          : ParameterRole::kWeight;
}

py::tuple input_shape(const OwnSpec& spec, int64_t sequence_length) {
  constexpr int kSamples = 2;
  if (spec.reads_tokens) return py::make_tuple(kSamples, sequence_length);
  return py::make_tuple(kSamples, spec.image_channels, *spec.image_size, *spec.image_size);
}

void check_outputs(const OwnSpec& spec, const py::dict& described) {
  const auto outputs = described["outputs"].cast<int64_t>();
  const int64_t expected = spec.reads_tokens ? spec.vocab_size.value() : spec.num_classes;
  if (outputs != expected)
    throw UsageError(fmt::format("model.{}: found {}, expected {}: the network's head returns so many logits",
                                 spec.reads_tokens ? "vocab_size" : "num_classes", expected, outputs));
  if (spec.reads_tokens && described["head"].cast<py::list>().size() != 1)
    throw UsageError(
        "the head of a network that reads tokens is not torch.nn.Linear(width, vocab_size, bias=False), "
        "whose logits are computed a chunk of tokens at a time. Assign such a layer to `head`");
}

/// Without FLOPs. With the lock.
ModelLayout layout_of_description(const Held& structure, const OwnSpec& spec, const py::dict& described) {
  const auto initializer = std::make_shared<PythonInitializer>(structure);
  ModelLayout layout;
  using Branch = std::tuple<std::string, int64_t, int64_t>;
  for (const auto& [name, in, out] : described["branches"].cast<std::vector<Branch>>()) {
    const int block = static_cast<int>(layout.branches.size()) / spec.branches_per_block;
    layout.branches.push_back({.name = name, .block = block, .stream = {in, out}, .hidden_width = 1});
  }
  using Parameter = std::tuple<std::string, std::vector<int64_t>, std::string, std::optional<int>, bool>;
  for (const auto& [name, shape, role, branch, scales] :
       described["parameters"].cast<std::vector<Parameter>>())
    layout.parameters.push_back({.name = name,
                                 .shape = shape,
                                 .role = role_named(role),
                                 .init = {},
                                 .branch = branch,
                                 .slice = {},
                                 .scales_branch_output = scales,
                                 .own_init = initializer});
  using Buffer = std::tuple<std::string, std::vector<int64_t>, double, std::optional<int>>;
  for (const auto& [name, shape, initial, branch] : described["buffers"].cast<std::vector<Buffer>>())
    layout.buffers.push_back(
        {.name = name, .shape = shape, .initial = initial, .branch = branch, .slice = {}});
  return layout;
}

NetworkNames names_of(const ModelLayout& layout, std::vector<std::string> head) {
  NetworkNames names{.of = {{std::nullopt, {}}},
                     .branches = static_cast<int>(layout.branches.size()),
                     .head = std::move(head)};
  for (int branch = 0; branch < names.branches; ++branch)
    names.of[branch];  // also of a branch without parameters
  for (const ParameterLayout& parameter : layout.parameters)
    names.of[parameter.branch].parameters.push_back(parameter.name);
  for (const BufferLayout& buffer : layout.buffers)
    names.of[buffer.branch].buffers.push_back(buffer.name);
  return names;
}

}  // namespace

std::shared_ptr<const OwnNetwork> python_network(const py::object& object) {
  const Held structure = hold(object);
  const auto names = std::make_shared<NetworkNames>();
  const auto layout = [structure, names](const OwnSpec& spec, int64_t sequence_length) {
    return in_python([&] {
      const py::dict described = structure->attr("describe")(input_shape(spec, sequence_length));
      check_outputs(spec, described);
      ModelLayout result = layout_of_description(structure, spec, described);
      *names = names_of(result, described["head"].cast<std::vector<std::string>>());
      return result;
    });
  };
  const auto make = [structure, names](const OwnSpec&, const DropRates& drop) -> std::unique_ptr<Model> {
    return in_python([&] {
      return std::make_unique<PythonModel>(hold(structure->attr("instance")()),
                                           std::make_shared<const NetworkNames>(*names), drop);
    });
  };
  return std::make_shared<OwnNetwork>(
      OwnNetwork{.layout = layout,
                 .make = make,
                 .has_batch_norm = object.attr("has_batch_norm").cast<bool>(),
                 .branches_per_block = object.attr("branches_per_block").cast<int>(),
                 .has_slices = false,
                 .draws_random_numbers = true});
}

void add_pass(py::module_& module) {
  py::class_<Pass>(module, "Pass")
      .def("branch", &Pass::branch)
      .def("end", &Pass::end)
      .def_property_readonly("changes_output", &Pass::changes_output);
}

}  // namespace sdp
