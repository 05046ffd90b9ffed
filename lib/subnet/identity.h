#pragma once

// The identity of a plan. Runs with the same identity train the same subnetworks, whatever their number of
// processes.

#include <cstdint>
#include <string>
#include <vector>

#include "subnet/plan.h"

namespace sdp {

struct UnitFigures {
  std::string branch;
  int64_t begin = 0;  ///< hidden range [begin, end) of the branch
  int64_t end = 0;
  int64_t parameters = 0;
  double flops = 0;  ///< of training, per sample
  std::vector<int> owners;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("branch", &UnitFigures::branch);
    field("begin", &UnitFigures::begin);
    field("end", &UnitFigures::end);
    field("parameters", &UnitFigures::parameters);
    field("flops", &UnitFigures::flops);
    field("owners", &UnitFigures::owners);
  }
};

struct PlanIdentity {
  std::string model;
  int workers = 0;
  int owners_per_unit = 0;
  double coverage = 1;
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;
  std::vector<UnitFigures> units;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("model", &PlanIdentity::model);
    field("workers", &PlanIdentity::workers);
    field("owners_per_unit", &PlanIdentity::owners_per_unit);
    field("coverage", &PlanIdentity::coverage);
    field("construction", &PlanIdentity::construction);
    field("masking", &PlanIdentity::masking);
    field("units", &PlanIdentity::units);
  }
};

PlanIdentity identity_of(const SubnetPlan& plan);
/// XXH3-128 of the identity as JSON, in hexadecimal.
std::string hash_of(const PlanIdentity& identity);
std::string plan_hash(const SubnetPlan& plan);

}  // namespace sdp
