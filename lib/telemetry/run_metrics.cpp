#include "telemetry/run_metrics.h"

#include "spec/value_text.h"
#include "spec/walk.h"
#include "telemetry/field_value.h"

namespace sdp {
namespace {

/// Appends scalars whose tags have this prefix.
class Scalars {
 public:
  explicit Scalars(std::string_view kind) : prefix_(std::string(kind) + "/") {}

  template <Listed Record>
  void add(const Record& record) {
    const auto field = [&]<class Member>(std::string_view key, Member Record::*member,
                                         const FieldOptions& options = {}, OnlyIf<Record> only_if = nullptr) {
      if (only_if && !(record.*only_if)()) return;
      if constexpr (std::is_function_v<Member>) {
        add(key, number_of((record.*member)()), options);
      } else if constexpr (HasNumber<Member>) {
        add(key, number_of(record.*member), options);
      } else {
        add(record.*member);
      }
    };
    Record::fields(field);
  }

  template <class Record>
  void add(const ByRank<Record>& ranks) {
    const auto field = [&]<class Member>(std::string_view key, Member Record::*member,
                                         const FieldOptions& options = {}, OnlyIf<Record> = nullptr) {
      add(key, number_of_ranks(ranks, member, options.over_processes), options);
    };
    Record::fields(field);
  }

  /// Members without a numeric value.
  template <class Other>
  requires(!Listed<Other>) void add(const Other&) {}

  std::vector<Scalar> scalars;

 private:
  void add(std::string_view key, double value, const FieldOptions& options) {
    if (options.is_scalar && std::isfinite(value)) scalars.push_back({prefix_ + std::string(key), value});
  }

  std::string prefix_;
};

}  // namespace

std::vector<Hyperparameter> hyperparameters_of(const ExperimentSpec& spec) {
  std::vector<Hyperparameter> settings;
  for_each_value(spec, "", [&](const std::string& key, const FieldInfo& field, const auto& value) {
    if (key == "seed" || field.treatment.in_report != InReport::kNotCompared)
      settings.push_back({key, yaml_text(value)});
  });
  return settings;
}

template <class Record>
std::vector<Scalar> scalars_of(const Record& record) {
  Scalars scalars(Record::kKind);
  scalars.add(record);
  return std::move(scalars.scalars);
}

template std::vector<Scalar> scalars_of(const TrainRecord&);
template std::vector<Scalar> scalars_of(const EvalRecord&);
template std::vector<Scalar> scalars_of(const StartRecord&);
template std::vector<Scalar> scalars_of(const CheckpointRecord&);
template std::vector<Scalar> scalars_of(const NonfiniteRecord&);

}  // namespace sdp
