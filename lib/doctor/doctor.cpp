#include "doctor/doctor.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <optional>

#include "comm/connect_beside.h"
#include "device/device.h"
#include "doctor/exchange.h"
#include "doctor/folders.h"
#include "doctor/judge.h"
#include "doctor/rates.h"
#include "doctor/regimes.h"
#include "io/file.h"
#include "spec/error.h"
#include "spec/json_fields.h"
#include "spec/text.h"
#include "text/json_text.h"

namespace sdp {
namespace {

/// The checks of one process, in order.
class Examination {
 public:
  Examination(const Ranks& ranks, const DoctorOptions& options, Communicator& control, Diagnosis& diagnosis,
              const std::function<void(const std::string&)>& tell)
      : ranks_(ranks), options_(options), control_(control), diagnosis_(diagnosis), tell_(tell) {}

  void run() {
    check_facts();
    check_exchange_of_devices();
    for (const CheckedMethod& method : checked_methods())
      on_devices(method.name, [&] { return check_method(method, *comm_, control_, reference_values); });
    check_rates();
    check_folders();
  }

 private:
  void add(Finding finding) { diagnosis_.findings.push_back(std::move(finding)); }

  bool add_agreed(const std::string& name, const std::function<Finding()>& check) {
    tell_(name);
    const Agreed agreed = agree(control_, name, check);
    add(agreed.finding);
    return !agreed.threw;
  }

  void check_facts() {
    tell_("versions and devices");
    std::string no_device;
    try {
      device_ = choose_device(options_.device, ranks_);
      prepare_device(*device_);
    } catch (const std::exception& error) {
      device_.reset();
      no_device = error.what();
    }
    divide_cores(control_);
    control_.barrier();
    Report own = {
        .versions = own_versions(), .cuda = own_cuda_versions(), .facts = own_facts(ranks_, device_)};
    own.facts.threads = at::get_num_threads();
    for (const std::string& text : control_.all_gather_strings(to_text(own)))
      diagnosis_.ranks.push_back(report_from(text));
    for (const Report& report : diagnosis_.ranks)
      hosts_.push_back(report.facts.host);

    add(judge_versions(diagnosis_.ranks));
    add(judge_driver(diagnosis_.ranks));
    const Agreed chosen = agree(control_, "devices", [&] {
      return no_device.empty() ? pass("devices", "") : failed("devices", no_device);
    });
    add(chosen.finding.status == Status::kFail ? chosen.finding : judge_devices(diagnosis_.ranks));
    if (diagnosis_.findings.back().status == Status::kFail) unusable_ = "the devices cannot be used together";
    add(judge_network(diagnosis_.ranks));
    add(judge_clocks(diagnosis_.ranks));
  }

  /// A check that needs the devices' communicator. Skipped if there is none, or if an earlier check made it
  /// unusable.
  void on_devices(const std::string& name, const std::function<Finding()>& check) {
    if (!unusable_.empty()) return add(skipped(name, "not checked, because " + unusable_));
    if (add_agreed(name, check)) return;
    unusable_ = fmt::format("{} ended with an error", name);
    if (comm_) comm_->abandon();
  }

  void check_exchange_of_devices() {
    on_devices("exchange", [&] {
      comm_ = connect_beside(control_, ranks_, *device_, kCheckTimeout);
      return check_exchange(calls_of(*comm_), comm_->rank(), comm_->size(), *device_);
    });
  }

  void check_rates() {
    constexpr const char* kCheck = "device rates";
    std::optional<RankRates> own;
    on_devices(kCheck, [&] {
      own = measure_rates(*comm_, hosts_);
      return pass(kCheck, "");
    });
    if (diagnosis_.findings.back().status == Status::kPass) {
      std::vector<RankRates> all;
      for (const std::string& text : control_.all_gather_strings(to_text(*own)))
        all.push_back(rates_from(text));
      std::vector<std::string> devices;
      for (const Report& report : diagnosis_.ranks)
        devices.push_back(report.facts.device);
      diagnosis_.findings.back() = judge_device_rates(all);
      add(judge_library_workspace(all, devices));
      add(judge_exchange_rates(all));
      diagnosis_.profiles = common_profiles(all);
    }
    save_profile();
  }

  void save_profile() {
    constexpr const char* kCheck = "profile";
    if (options_.save.empty()) return add(skipped(kCheck, "not requested (--save FILE.json)"));
    if (diagnosis_.profiles.empty()) return add(skipped(kCheck, "not saved, because no rates were measured"));
    add_agreed(kCheck, [&] {
      if (control_.rank() == 0) write_file_atomically(options_.save, profile_text(diagnosis_.profiles));
      return pass(kCheck,
                  fmt::format("saved: sdp-train plan --device {}", shell_word(options_.save.string())));
    });
  }

  void check_folders() {
    constexpr const char* kData = "data folder";
    if (options_.data.empty()) {
      add(skipped(kData, "not requested (--data FOLDER)"));
    } else {
      add_agreed(kData, [&] {
        return is_first_of_host(hosts_, control_.rank()) ? check_data_folder(options_.data)
                                                         : skipped(kData, "");
      });
    }
    add_agreed("run folder", [&] { return check_run_folder(control_, options_.output, hosts_); });
  }

  const Ranks& ranks_;
  const DoctorOptions& options_;
  Communicator& control_;
  Diagnosis& diagnosis_;
  const std::function<void(const std::string&)>& tell_;
  std::optional<at::Device> device_;
  std::vector<std::string> hosts_;  ///< of all ranks
  std::unique_ptr<Communicator> comm_;
  std::string unusable_;  ///< why the devices' communicator is unusable; empty: it is usable
};

}  // namespace

Agreed agree(Communicator& control, const std::string& name, const std::function<Finding()>& check) {
  Finding own;
  bool threw = false;
  try {
    own = check();
  } catch (const std::exception& error) {
    threw = true;
    const std::string what = error.what();
    own = failed(name, what.substr(0, what.find('\n')));  // LibTorch appends its call stack
  }
  own.check = name;
  nlohmann::ordered_json json = json_of(own);
  json["threw"] = threw;
  Agreed agreed;
  std::vector<Finding> of_ranks;
  for (const std::string& text : control.all_gather_strings(json_text(json))) {
    const auto other = nlohmann::ordered_json::parse(text);
    of_ranks.push_back(struct_of<Finding>(other));
    agreed.threw = agreed.threw || other.at("threw").get<bool>();
  }
  agreed.finding = merged(of_ranks);
  return agreed;
}

void examine(const Ranks& ranks, const DoctorOptions& options, Communicator& control, Diagnosis& diagnosis,
             const std::function<void(const std::string& check)>& tell) {
  Examination(ranks, options, control, diagnosis, tell).run();
}

void examine_alone(const Ranks& ranks, const std::string& reason, Diagnosis& diagnosis) {
  Report own = {
      .versions = own_versions(), .cuda = own_cuda_versions(), .facts = own_facts(ranks, std::nullopt)};
  diagnosis.ranks = {own};
  diagnosis.findings = {judge_versions(diagnosis.ranks), judge_driver(diagnosis.ranks),
                        failed("processes", reason)};
}

}  // namespace sdp
