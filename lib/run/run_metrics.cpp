#include "run/run_metrics.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "optim/registry.h"
#include "spec/value_text.h"

namespace sdp {
namespace {

template <class Number>
requires std::is_arithmetic_v<Number>
double number_of(Number number) {
  return static_cast<double>(number);
}
double number_of(const std::optional<double>& number) {
  return number.value_or(std::numeric_limits<double>::quiet_NaN());
}
double number_of(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

/// Appends scalars whose tags have this prefix.
class Scalars {
 public:
  explicit Scalars(std::string_view kind) : prefix_(std::string(kind) + "/") {}

  template <HasFields Record>
  void add(const Record& record) {
    for_each_field<Record>([&]<class Member>(const Field<Record>& field, Member Record::*member) {
      if (field.only_if && !(record.*field.only_if)()) return;
      if constexpr (std::is_function_v<Member>)
        add(field, number_of((record.*member)()));
      else if constexpr (requires { number_of(record.*member); })
        add(field, number_of(record.*member));
      else
        add(record.*member);
    });
  }

  template <class Record>
  void add(const ByRank<Record>& ranks) {
    for_each_field<Record>([&](const FieldInfo& field, auto member) { add(field, mean_of(ranks, member)); });
  }

  /// Members without a numeric value.
  template <class Other>
  requires(!HasFields<Other>) void add(const Other&) {}

  std::vector<Scalar> scalars;

 private:
  void add(const FieldInfo& field, double value) {
    if (field.is_shown && std::isfinite(value)) scalars.push_back({prefix_ + std::string(field.key), value});
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
