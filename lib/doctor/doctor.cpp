#include "doctor/doctor.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <optional>

#include "comm/communicator.h"
#include "doctor/checks.h"
#include "engine/device.h"
#include "io/file.h"
#include "spec/error.h"
#include "spec/json_fields.h"
#include "spec/text.h"

namespace sdp {
namespace {

/// How long the ranks wait for each other: in a check, and then when they exchange their results. A rank that
/// leaves a check early does not end the other ranks' check.
constexpr std::chrono::seconds kCheckTimeout{30};
constexpr std::chrono::seconds kAgreeTimeout{90};

/// The checks of one process, in order.
class Examination {
 public:
  Examination(const Ranks& ranks, const DoctorOptions& options, Communicator& control, Diagnosis& diagnosis,
              const std::function<void(const std::string&)>& on_check)
      : ranks_(ranks), options_(options), control_(control), diagnosis_(diagnosis), on_check_(on_check) {}

  void run() {
    check_machine();
    on_devices("exchange", [&] {
      comm_ = connect_beside(control_, ranks_, *device_, kCheckTimeout);
      return check_exchange(calls_of(*comm_), comm_->rank(), comm_->size(), *device_);
    });
    on_devices("masked step", [&] {
      return check_masked_step(oracle_values(masked_step_spec(Precision::kFp64, comm_->size())), *comm_);
    });
    check_rates();
    check("run folder", [&] {
      return check_run_folder(control_, options_.output, hosts_[static_cast<size_t>(control_.rank())]);
    });
  }

 private:
  Finding& last() { return diagnosis_.findings.back(); }
  void add(Finding finding) { diagnosis_.findings.push_back(std::move(finding)); }

  /// Returns whether no rank threw.
  bool check(const std::string& name, const std::function<Finding()>& run_check) {
    on_check_(name);
    const Agreed agreed = agree(control_, name, run_check);
    add(agreed.finding);
    return !agreed.threw;
  }

  /// A check that needs the devices' communicator. Skipped if there is none, or if an earlier check made it
  /// unusable.
  void on_devices(const std::string& name, const std::function<Finding()>& run_check) {
    if (!unusable_.empty()) return add(skipped(name, "not checked, because " + unusable_));
    if (check(name, run_check)) return;
    unusable_ = fmt::format("{} ended with an error", name);
    if (comm_) comm_->abandon();
  }

  void check_machine() {
    on_check_("versions, devices and network");
    const Agreed chosen = agree(control_, "devices", [&] {
      const at::Device device = choose_device(options_.device, ranks_);
      prepare_device(device);
      device_ = device;
      return pass("devices", "");
    });
    divide_cores(control_);
    const std::string own = json_text(json_of(own_facts(ranks_, device_)));
    for (const std::string& text : control_.all_gather_strings(own)) {
      diagnosis_.processes.push_back(struct_of<ProcessFacts>(nlohmann::ordered_json::parse(text)));
      hosts_.push_back(diagnosis_.processes.back().host);
    }
    add(check_versions(diagnosis_.processes));
    add(check_driver(diagnosis_.processes));
    add(check_network(diagnosis_.processes, ranks_));
    add(chosen.threw ? chosen.finding : check_devices(diagnosis_.processes));
    if (last().status == Status::kFail) unusable_ = "the devices cannot be used together";
  }

  void check_rates() {
    constexpr const char* kCheck = "device rates";
    DeviceProfiles own;
    on_devices(kCheck, [&] {
      own = measure_rates(*comm_, hosts_);
      return pass(kCheck, "");
    });
    if (last().status == Status::kPass) {
      std::vector<DeviceProfiles> all;
      for (const std::string& text : control_.all_gather_strings(json_text(to_json(own))))
        all.push_back(profiles_of(nlohmann::ordered_json::parse(text)));
      last().detail = device_rates_text(all);
      if (all.size() > 1) add(pass("exchange rates", link_rates_text(all)));
      diagnosis_.profiles = common_profiles(all);
    }
    if (options_.save.empty()) return;
    constexpr const char* kProfile = "profile";
    if (diagnosis_.profiles.empty()) return add(skipped(kProfile, "no rates were measured"));
    check(kProfile, [&] {
      if (control_.rank() == 0) write_file_atomically(options_.save, profile_text(diagnosis_.profiles));
      return pass(kProfile, "saved: sdp-train plan --device " + shell_word(options_.save.string()));
    });
  }

  const Ranks& ranks_;
  const DoctorOptions& options_;
  Communicator& control_;
  Diagnosis& diagnosis_;
  const std::function<void(const std::string&)>& on_check_;
  std::optional<at::Device> device_;
  std::vector<std::string> hosts_;  ///< of all ranks
  std::unique_ptr<Communicator> comm_;
  std::string unusable_;  ///< why the devices' communicator is unusable; empty: it is usable
};

}  // namespace

Diagnosis diagnose(const Ranks& ranks, const DoctorOptions& options,
                   const std::function<void(const std::string& check)>& on_check) {
  Diagnosis diagnosis;
  try {
    on_check("that all processes connect");
    const std::unique_ptr<Communicator> control = connect(
        ranks, at::kCPU,
        {.timeout = kAgreeTimeout, .job = fmt::format("of {} processes of sdp-train doctor", ranks.world)});
    Examination(ranks, options, *control, diagnosis, on_check).run();
  } catch (const Error& error) {
    diagnosis.lost = error.what();
    if (diagnosis.processes.empty()) {
      diagnosis.processes = {own_facts(ranks, std::nullopt)};
      diagnosis.findings = {check_versions(diagnosis.processes), check_driver(diagnosis.processes),
                            check_network(diagnosis.processes, ranks)};
    }
    diagnosis.findings.push_back(failed("processes", diagnosis.lost));
  }
  return diagnosis;
}

}  // namespace sdp
